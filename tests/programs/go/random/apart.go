package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// networks: threads with networks of their own, in each of which another server listens at the same address.
// Needs root; without it is said so.
func networks(s *scene) {
	const port = 7711
	said := make([]*scene, 2+s.Intn(3))
	listening, over := make(chan error, len(said)), make(chan struct{})
	var all sync.WaitGroup
	for i := range said {
		said[i] = &scene{Rand: s.part(), name: fmt.Sprintf("%s %d", s.name, i)}
		all.Add(1)
		go func(one *scene, number byte) {
			defer all.Done()
			// It ends with its goroutine, and its network with its last socket.
			runtime.LockOSThread()
			if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
				one.say("%s", word(err))
				listening <- err
				return
			}
			raise()
			listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
			must(err)
			go marks(listener, number)
			listening <- nil
			<-over
			for rounds := 1 + one.Intn(5); rounds > 0; rounds-- {
				c, err := net.Dial("tcp4", listener.Addr().String())
				must(err)
				sent := random(one.Rand, size(one.Rand))
				go func() { c.Write(sent); c.(*net.TCPConn).CloseWrite() }()
				got, err := io.ReadAll(c)
				for at := range sent {
					sent[at] ^= number
				}
				one.say("%d bytes: %v, %s", len(got), bytes.Equal(sent, got), word(err))
				c.Close()
			}
			listener.Close()
		}(said[i], byte(i+1))
	}
	for range said {
		<-listening
	}
	close(over)
	all.Wait()
	for _, one := range said {
		s.said.Write(one.said.Bytes())
	}
}

// raise has this thread's network take connections to itself.
func raise() {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	must(err)
	request := struct {
		name  [16]byte
		flags uint16
		rest  [22]byte
	}{flags: syscall.IFF_UP}
	copy(request.name[:], "lo")
	_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)))
	if failed != 0 {
		panic(failed)
	}
	must(syscall.Close(fd))
}

// marks answers with what it is sent, in a way by which its server is known.
func marks(listener net.Listener, number byte) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			room := make([]byte, 3000)
			for {
				n, err := c.Read(room)
				for at := range room[:n] {
					room[at] ^= number
				}
				c.Write(room[:n])
				if err != nil {
					return
				}
			}
		}()
	}
}

// tables: a thread has a table of descriptors of its own, in which it closes all, and numbers mean other files. In
// a process of its own.
func tables(s *scene) {
	out, err := exec.Command(os.Args[0], "table", fmt.Sprint(s.Int63())).CombinedOutput()
	s.say("%s%s", out, word(err))
}

// table: that process.
func table(words []string) {
	var seed int64
	fmt.Sscan(words[0], &seed)
	s := &scene{Rand: s0(seed), name: "table"}
	a, b := pair(s)
	ended := make(chan string)
	times := 50 + s.Intn(100)
	go func() {
		runtime.LockOSThread()
		const files, closeRange = 0x400, 436
		if err := syscall.Unshare(files); err != nil {
			ended <- word(err)
			return
		}
		_, _, failed := syscall.Syscall(closeRange, 3, 1<<31-1, 0)
		said := fmt.Sprint(int(failed))
		for ; times > 0 && said == "0"; times-- {
			said = otherNumbers()
		}
		ended <- said
	}()
	for steps := 2 + s.Intn(8); steps > 0; steps-- {
		both(s, a, b)
		c, d := pair(s)
		both(s, c, d)
		c.Close()
		d.Close()
	}
	s.say("a table of its own: %s", <-ended)
	a.Close()
	b.Close()
	os.Stdout.Write(s.said.Bytes())
}

// otherNumbers: what goes into one end comes out of the other, in a thread's own table. "0": it does.
func otherNumbers() string {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(err)
	got := make([]byte, 10)
	_, err = syscall.Write(ends[0], []byte("beside"))
	n, failed := syscall.Read(ends[1], got)
	if err != nil || failed != nil || string(got[:n]) != "beside" {
		return fmt.Sprintf("%s, %s, %q", word(err), word(failed), got[:n])
	}
	for _, fd := range ends {
		if err := syscall.Close(fd); err != nil {
			return word(err)
		}
	}
	return "0"
}

// paths: listeners and dials that would use several networks at once (MPTCP), where this Go and kernel have it.
func paths(s *scene) {
	choose := func(of any, on bool) {
		if may, is := of.(interface{ SetMultipathTCP(bool) }); is {
			may.SetMultipathTCP(on)
		}
	}
	for rounds := 1 + s.Intn(5); rounds > 0; rounds-- {
		config, dialer := &net.ListenConfig{}, &net.Dialer{}
		choose(config, s.Intn(3) > 0)
		choose(dialer, s.Intn(3) == 0)
		listener, err := config.Listen(context.Background(), "tcp4", "127.0.0.1:0")
		must(err)
		c, err := dialer.Dial("tcp4", listener.Addr().String())
		must(err)
		d, err := listener.Accept()
		must(err)
		a, b := c.(*net.TCPConn), d.(*net.TCPConn)
		warm(a, b, s.Intn(21))
		for steps := 1 + s.Intn(6); steps > 0; steps-- {
			both(s, a, b)
		}
		halves(s, a, b)
		a.Close()
		b.Close()
		listener.Close()
	}
}

// secret: one connection of TLS, both ways at once.
func secret(s *scene) {
	server := httptest.NewUnstartedServer(nil)
	quiet(server)
	server.StartTLS()
	defer server.Close()
	a, b := pair(s)
	near := tls.Client(a, &tls.Config{InsecureSkipVerify: true})
	far := tls.Server(b, &tls.Config{Certificates: server.TLS.Certificates})
	for rounds := 1 + s.Intn(8); rounds > 0; rounds-- {
		var all sync.WaitGroup
		said := make([]string, 2)
		for i, ends := range [][2]net.Conn{{near, far}, {far, near}} {
			sent, pieces := random(s.Rand, size(s.Rand)), 1+s.Intn(20)
			got := make([]byte, len(sent))
			all.Add(2)
			go func(ends [2]net.Conn) {
				defer all.Done()
				for at := 0; at < pieces; at++ {
					_, err := ends[0].Write(sent[len(sent)*at/pieces : len(sent)*(at+1)/pieces])
					must(err)
				}
			}(ends)
			go func(i int, ends [2]net.Conn) {
				defer all.Done()
				_, err := io.ReadFull(ends[1], got)
				said[i] = fmt.Sprintf("%d: %v %s", len(got), bytes.Equal(sent, got), word(err))
			}(i, ends)
		}
		all.Wait()
		s.say("%s", strings.Join(said, ", "))
	}
	s.say("%s", word(near.CloseWrite()))
	rest, err := io.ReadAll(far)
	s.say("%d, %s", len(rest), word(err))
	near.Close()
	far.Close()
}

// stops: a process is stopped and goes on as a terminal has it (SIGTSTP, SIGCONT), with its connection open.
func stops(s *scene) {
	listener := listen()
	go echoes(listener)
	command := exec.Command(os.Args[0], "pause", listener.Addr().String(), fmt.Sprint(s.Int63()))
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := command.StdoutPipe()
	must(err)
	must(command.Start())
	fmt.Fscanln(output, new(string))
	for rounds := 1 + s.Intn(6); rounds > 0; rounds-- {
		time.Sleep(time.Duration(s.Intn(20)) * time.Millisecond)
		must(syscall.Kill(-command.Process.Pid, syscall.SIGTSTP))
		time.Sleep(time.Duration(s.Intn(20)) * time.Millisecond)
		must(syscall.Kill(-command.Process.Pid, syscall.SIGCONT))
	}
	must(command.Process.Signal(syscall.SIGTERM))
	out, err := io.ReadAll(output)
	must(err)
	s.say("%s%s", out, word(command.Wait()))
	listener.Close()
}

// pause: that process, which exchanges until SIGTERM, and says whether all came back.
func pause(words []string) {
	over := make(chan os.Signal, 1)
	signal.Notify(over, syscall.SIGTERM)
	fmt.Println("ready")
	var seed int64
	fmt.Sscan(words[1], &seed)
	s := &scene{Rand: s0(seed)}
	c, err := net.Dial("tcp4", words[0])
	must(err)
	for {
		if answer := asked(s, c.(*net.TCPConn), 20); answer != "20 of 20" {
			fmt.Println(answer)
			return
		}
		select {
		case <-over:
			fmt.Println("all came back")
			return
		default:
		}
	}
}

// beside: datagrams and streams of Unix sockets in the same program.
func beside(s *scene) {
	a, b := pair(s)
	near, err := net.ListenPacket("udp4", "127.0.0.1:0")
	must(err)
	far, err := net.Dial("udp4", near.LocalAddr().String())
	must(err)
	for rounds := 1 + s.Intn(40); rounds > 0; rounds-- {
		sent, got := random(s.Rand, 1+s.Intn(1400)), make([]byte, 2000)
		_, err = far.Write(sent)
		must(err)
		n, from, err := near.ReadFrom(got)
		s.say("a datagram: %v, %s, of its sender: %v", bytes.Equal(sent, got[:n]), word(err), from.String() == far.LocalAddr().String())
		if s.Intn(4) == 0 {
			both(s, a, b)
		}
	}
	far.SetReadDeadline(time.Now().Add(time.Duration(s.Intn(3)) * time.Millisecond))
	_, err = far.Read(make([]byte, 10))
	s.say("none: %s", word(err))
	near.Close()
	far.Close()
	a.Close()
	b.Close()
}

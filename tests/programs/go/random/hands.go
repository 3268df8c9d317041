package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// again is another Go connection of the same socket.
func again(c *net.TCPConn) *net.TCPConn {
	file, err := c.File()
	must(err)
	defer file.Close()
	other, err := net.FileConn(file)
	must(err)
	return other.(*net.TCPConn)
}

// copies: one socket by two numbers, each with deadlines of its own; what one ends is ended for both.
func copies(s *scene) {
	for rounds := 1 + s.Intn(5); rounds > 0; rounds-- {
		a, b := pair(s)
		other := again(a)
		for steps := 1 + s.Intn(8); steps > 0; steps-- {
			one := []*net.TCPConn{a, other}[s.Intn(2)]
			switch s.Intn(5) {
			case 0:
				transfer(s, one, b, size(s.Rand))
			case 1:
				transfer(s, b, one, size(s.Rand))
			case 2:
				both(s, one, b)
			case 3:
				late(s, one)
			default:
				crossed(s, a, other, b)
			}
		}
		how := s.Intn(4)
		s.say("copies end %d", how)
		[]func(*scene, *net.TCPConn, *net.TCPConn, *net.TCPConn){oneGoes, halfEnds, under, lingering}[how](s, a, other, b)
		a.Close()
		other.Close()
		b.Close()
	}
}

// crossed: both numbers write in turn, and what comes is read by both in turn.
func crossed(s *scene, a, other, b *net.TCPConn) {
	sent, got := random(s.Rand, 2*(1+s.Intn(3000))), make([]byte, 0, 6000)
	middle := len(sent) / 2
	for i, c := range []*net.TCPConn{a, other} {
		_, err := c.Write(sent[i*middle : (i+1)*middle])
		must(err)
	}
	_, err := io.ReadFull(b, got[:len(sent)])
	must(err)
	s.say("crossed out: %v", bytes.Equal(sent, got[:len(sent)]))
	_, err = b.Write(sent)
	must(err)
	for i, c := range []*net.TCPConn{other, a} {
		_, err = io.ReadFull(c, got[i*middle:(i+1)*middle])
		must(err)
	}
	s.say("crossed in: %v", bytes.Equal(sent, got[:len(sent)]))
}

// oneGoes: one of the numbers is closed: the other goes on.
func oneGoes(s *scene, a, other, b *net.TCPConn) {
	if s.Intn(2) == 0 {
		a, other = other, a
	}
	s.say("%s", word(a.Close()))
	transfer(s, b, other, size(s.Rand))
	transfer(s, other, b, size(s.Rand))
	s.say("%s", word(other.Close()))
	reads(s, "b", b)
}

// halfEnds: one says that nothing more comes, for both.
func halfEnds(s *scene, a, other, b *net.TCPConn) {
	s.say("%s", word(other.CloseWrite()))
	writes(s, "a", a)
	reads(s, "b", b)
	transfer(s, b, a, size(s.Rand))
	transfer(s, b, other, size(s.Rand))
	s.say("%s", word(b.Close()))
	reads(s, "a", a)
	reads(s, "other", other)
}

// under: one is closed while it is read from; what then comes is the other's.
func under(s *scene, a, other, b *net.TCPConn) {
	pause := time.Duration(s.Intn(2000)) * time.Microsecond
	go func() { time.Sleep(pause); a.Close() }()
	reads(s, "a", a)
	transfer(s, b, other, size(s.Rand))
	transfer(s, other, b, size(s.Rand))
}

// lingering: the last number that closes resets, and what was written before is read all the same.
func lingering(s *scene, a, other, b *net.TCPConn) {
	sent := random(s.Rand, 1+s.Intn(3000))
	_, err := other.Write(sent)
	must(err)
	s.say("%d wait", waiting(b, len(sent)))
	s.say("%s, %s", word(a.SetLinger(0)), word(a.Close()))
	s.say("still %d, %s", waiting(b, len(sent)), word(other.Close()))
	got, err := io.ReadAll(b)
	s.say("read: %v, %s", bytes.Equal(sent, got), word(err))
	writes(s, "b", b)
}

// unix is a pair of Unix sockets.
func unix() (*net.UnixConn, *os.File) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(err)
	file := os.NewFile(uintptr(ends[0]), "unix")
	defer file.Close()
	c, err := net.FileConn(file)
	must(err)
	return c.(*net.UnixConn), os.NewFile(uintptr(ends[1]), "unix")
}

// send passes a connection on.
func send(way *net.UnixConn, c *net.TCPConn) {
	file, err := c.File()
	must(err)
	defer file.Close()
	_, _, err = way.WriteMsgUnix([]byte("c"), syscall.UnixRights(int(file.Fd())), nil)
	must(err)
}

// receive takes one that was passed on; nil: there will be no more.
func receive(way *net.UnixConn) *net.TCPConn {
	room, text := make([]byte, 64), make([]byte, 1)
	n, m, _, _, err := way.ReadMsgUnix(text, room)
	if n == 0 || errors.Is(err, io.EOF) {
		return nil
	}
	must(err)
	messages, err := syscall.ParseSocketControlMessage(room[:m])
	must(err)
	numbers, err := syscall.ParseUnixRights(&messages[0])
	must(err)
	syscall.CloseOnExec(numbers[0])
	file := os.NewFile(uintptr(numbers[0]), "passed")
	defer file.Close()
	c, err := net.FileConn(file)
	must(err)
	return c.(*net.TCPConn)
}

// passed: connections go by a Unix socket to somebody else, with or without something to read, and to another
// process.
func passed(s *scene) {
	way, file := unix()
	far, err := net.FileConn(file)
	must(err)
	for rounds := 1 + s.Intn(4); rounds > 0; rounds-- {
		a, b := pair(s)
		transfer(s, a, b, size(s.Rand))
		sent := random(s.Rand, s.Intn(3000))
		_, err = a.Write(sent)
		must(err)
		s.say("%d wait", waiting(b, len(sent)))
		send(way, b)
		if s.Intn(3) > 0 {
			b.Close()
		}
		c := receive(far.(*net.UnixConn))
		got := make([]byte, len(sent))
		_, err = io.ReadFull(c, got)
		s.say("what waited: %v, %s", bytes.Equal(sent, got), word(err))
		for steps := s.Intn(4); steps > 0; steps-- {
			both(s, a, c)
		}
		b.Close()
		halves(s, a, c)
		a.Close()
		c.Close()
	}
	way.Close()
	far.Close()
	file.Close()
	given(s)
}

// given: the same to another process, which answers there.
func given(s *scene) {
	way, file := unix()
	command := exec.Command(os.Args[0], "take")
	command.ExtraFiles, command.Stderr = []*os.File{file}, os.Stderr
	must(command.Start())
	file.Close()
	var all []*net.TCPConn
	for count := 1 + s.Intn(4); count > 0; count-- {
		a, b := pair(s)
		transfer(s, a, b, size(s.Rand))
		send(way, b)
		b.Close()
		all = append(all, a)
	}
	for i, a := range all {
		s.say("%d: %s", i, asked(s, a, 1+s.Intn(30)))
		a.Close()
	}
	way.Close()
	s.say("who took them: %s", word(command.Wait()))
}

// take: that process.
func take([]string) {
	c, err := net.FileConn(os.NewFile(3, "way"))
	must(err)
	var all sync.WaitGroup
	for {
		taken := receive(c.(*net.UnixConn))
		if taken == nil {
			all.Wait()
			return
		}
		all.Add(1)
		go func() { defer all.Done(); io.Copy(taken, taken); taken.Close() }()
	}
}

// asked says how many of so many pieces came back as they were.
func asked(s *scene, c *net.TCPConn, count int) string {
	same := 0
	for i := 0; i < count; i++ {
		sent := random(s.Rand, 1+s.Intn(4000))
		got := make([]byte, len(sent))
		if _, err := c.Write(sent); err != nil {
			return word(err)
		}
		if _, err := io.ReadFull(c, got); err != nil {
			return word(err)
		}
		if bytes.Equal(sent, got) {
			same++
		}
	}
	return fmt.Sprintf("%d of %d", same, count)
}

// restarts: a new process takes a listener over, as a server is replaced without a gap; what was accepted
// before stays where it is.
func restarts(s *scene) {
	listener := listen()
	address := listener.Addr().String()
	dial := func() *net.TCPConn {
		c, err := net.DialTimeout("tcp4", address, 20*time.Second)
		must(err)
		return c.(*net.TCPConn)
	}
	a := dial()
	b, err := listener.AcceptTCP()
	must(err)
	warm(a, b, s.Intn(21))
	for turns := 1 + s.Intn(3); turns > 0; turns-- {
		file, err := listener.File()
		must(err)
		next := exec.Command(os.Args[0], "serve")
		next.ExtraFiles, next.Stderr = []*os.File{file}, os.Stderr
		input, err := next.StdinPipe()
		must(err)
		output, err := next.StdoutPipe()
		must(err)
		must(next.Start())
		file.Close()
		fmt.Fscanln(output, new(string))
		for i := 1 + s.Intn(4); i > 0; i-- {
			c := dial()
			s.say("new: %s", asked(s, c, 1+s.Intn(40)))
			c.CloseWrite()
			reads(s, "new", c)
			c.Close()
		}
		last := dial()
		s.say("last: %s", asked(s, last, 1+s.Intn(20)))
		transfer(s, a, b, size(s.Rand))
		input.Close()
		s.say("it ends: %s", word(next.Wait()))
		reads(s, "last", last)
		last.Close()
		transfer(s, b, a, size(s.Rand))
	}
	listener.Close()
	halves(s, a, b)
	a.Close()
	b.Close()
}

// echoes serves a listener until it is closed.
func echoes(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() { io.Copy(c, c); c.Close() }()
	}
}

// serve: that process, until its input ends.
func serve([]string) {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	must(err)
	go echoes(listener)
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}

// reuse: two listeners of one address (SO_REUSEPORT), one of which goes.
func reuse(s *scene) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			const reusePort = 15
			must(syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, reusePort, 1))
		})
	}}
	address, listeners := "127.0.0.1:0", []net.Listener{}
	for len(listeners) < 2+s.Intn(2) {
		listener, err := config.Listen(context.Background(), "tcp4", address)
		must(err)
		address, listeners = listener.Addr().String(), append(listeners, listener)
		go echoes(listener)
	}
	var all []*net.TCPConn
	for _, listener := range listeners {
		for i := 1 + s.Intn(8); i > 0; i-- {
			c, err := net.Dial("tcp4", address)
			must(err)
			all = append(all, c.(*net.TCPConn))
			s.say("asked: %s", asked(s, c.(*net.TCPConn), 1+s.Intn(20)))
		}
		// Whom it has accepted it keeps.
		alone(func() { listener.Close() })
		for _, c := range all {
			s.say("kept: %s", asked(s, c, 1+s.Intn(5)))
		}
	}
	for _, c := range all {
		c.Close()
	}
}

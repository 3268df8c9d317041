package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// both sends both ways at once. The numbers of both are drawn first.
func both(s *scene, a, b *net.TCPConn) {
	one := &scene{Rand: s.part(), name: s.name + " to"}
	other := &scene{Rand: s.part(), name: s.name + " fro"}
	done := make(chan struct{})
	go func() { transfer(one, a, b, size(one.Rand)); close(done) }()
	transfer(other, b, a, size(other.Rand))
	<-done
	s.said.Write(one.said.Bytes())
	s.said.Write(other.said.Bytes())
}

// late: deadlines of a connection on which nothing comes.
func late(s *scene, c *net.TCPConn) {
	buffer, begin := make([]byte, 10), time.Now()
	wait := time.Duration(s.Intn(4)) * time.Millisecond
	switch how := s.Intn(3); {
	case fault == "early":
		// Long enough that a busy machine does not hide it.
		wait += 300 * time.Millisecond
		c.SetReadDeadline(begin.Add(wait / 3))
	case how == 0:
		c.SetReadDeadline(begin.Add(wait))
	case how == 1:
		c.SetDeadline(begin.Add(wait))
	default:
		go func() { time.Sleep(wait); c.SetReadDeadline(time.Unix(1, 0)) }()
	}
	n, err := c.Read(buffer)
	s.say("nothing comes: %d, %s, early: %v", n, word(err), time.Since(begin) < wait)
	_, err = c.Read(buffer)
	s.say("still: %s", word(err))
	c.SetDeadline(time.Time{})
}

// past: a deadline that is past forbids even what could be read.
func past(s *scene, from, to *net.TCPConn) {
	_, err := from.Write([]byte("0123456789"))
	must(err)
	s.say("%d bytes wait", waiting(to, 10))
	to.SetDeadline(time.Unix(1, 0))
	buffer := make([]byte, 10)
	n, err := to.Read(buffer)
	s.say("past: %d, %s", n, word(err))
	n, err = to.Write(buffer)
	s.say("past: %d, %s", n, word(err))
	to.SetDeadline(time.Time{})
	_, err = io.ReadFull(to, buffer)
	s.say("then: %s %s", buffer, word(err))
}

func options(s *scene, a, b *net.TCPConn) {
	s.say("addresses: %v", a.LocalAddr().String() == b.RemoteAddr().String() && a.RemoteAddr().String() == b.LocalAddr().String())
	quick := s.Intn(2)
	errs := []error{a.SetNoDelay(quick == 1), a.SetKeepAlive(true), a.SetKeepAlivePeriod(time.Minute), a.SetLinger(-1)}
	if s.Intn(3) == 0 {
		errs = append(errs, a.SetReadBuffer(8192), b.SetWriteBuffer(8192))
	}
	for _, option := range [][2]int{{syscall.SOL_SOCKET, syscall.SO_ERROR}, {syscall.SOL_SOCKET, syscall.SO_TYPE}, {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}} {
		value, err := raw(a, false, func(fd int) (int, error) { return syscall.GetsockoptInt(fd, option[0], option[1]) })
		s.say("option %v: %d %s", option, value, word(err))
	}
	for _, err := range errs {
		s.say("set: %s", word(err))
	}
}

// stream: one connection for all of it.
func stream(s *scene) {
	a, b := pair(s)
	defer a.Close()
	defer b.Close()
	for steps := 5 + s.Intn(25); steps > 0; steps-- {
		if s.Intn(2) == 0 {
			a, b = b, a
		}
		switch s.Intn(9) {
		case 0:
			both(s, a, b)
		case 1:
			late(s, a)
		case 2:
			past(s, a, b)
		case 3:
			options(s, a, b)
		case 4:
			time.Sleep(time.Duration(s.Intn(5)) * time.Millisecond)
		default:
			transfer(s, a, b, size(s.Rand))
		}
	}
}

// pass hands on what comes, until it ends, and then says so.
func pass(from, to *net.TCPConn, done *sync.WaitGroup) {
	defer done.Done()
	io.Copy(to, from)
	to.CloseWrite()
}

// hop is a listener whose connections go on to an address, both ways, by splice.
func hop(listener *net.TCPListener, address string) {
	for {
		in, err := listener.AcceptTCP()
		if err != nil {
			return
		}
		go func() {
			out, err := net.Dial("tcp4", address)
			must(err)
			var done sync.WaitGroup
			done.Add(2)
			go pass(in, out.(*net.TCPConn), &done)
			go pass(out.(*net.TCPConn), in, &done)
			done.Wait()
			in.Close()
			out.Close()
		}()
	}
}

// relay: such a hop as a process, until its input ends.
func relay(words []string) {
	listener := listen()
	go hop(listener, words[0])
	fmt.Println(listener.Addr())
	io.Copy(io.Discard, os.Stdin)
}

// chain: hops between the ends, one of them maybe in another process.
func chain(s *scene) {
	last := listen()
	address, closers := last.Addr().String(), []func(){}
	for hops := 1 + s.Intn(3); hops > 0; hops-- {
		if s.Intn(3) == 0 {
			next, end := process(address)
			address, closers = next, append(closers, end)
			continue
		}
		listener := listen()
		go hop(listener, address)
		address, closers = listener.Addr().String(), append(closers, func() { listener.Close() })
	}
	for i := 1 + s.Intn(3); i > 0; i-- {
		first, err := net.Dial("tcp4", address)
		must(err)
		b, err := last.AcceptTCP()
		must(err)
		a := first.(*net.TCPConn)
		warm(a, b, s.Intn(21))
		for steps := 2 + s.Intn(6); steps > 0; steps-- {
			both(s, a, b)
		}
		a.CloseWrite()
		rest, err := io.ReadAll(b)
		s.say("ended one way: %d, %s", len(rest), word(err))
		transfer(s, b, a, size(s.Rand))
		b.Close()
		rest, err = io.ReadAll(a)
		s.say("ended: %d, %s", len(rest), word(err))
		a.Close()
	}
	last.Close()
	for _, end := range closers {
		end()
	}
}

// process starts a relay to an address, and says where it listens and how it ends.
func process(address string) (string, func()) {
	command := exec.Command(os.Args[0], "relay", address)
	input, err := command.StdinPipe()
	must(err)
	output, err := command.StdoutPipe()
	must(err)
	command.Stderr = os.Stderr
	must(command.Start())
	var where string
	_, err = fmt.Fscanln(output, &where)
	must(err)
	return where, func() {
		input.Close()
		must(command.Wait())
	}
}

// crowd: many connections to one listener, each with a server of its own.
func crowd(s *scene) {
	listener := listen()
	go echoes(listener)
	answers := make([]string, 2+s.Intn(30))
	var all sync.WaitGroup
	for i := range answers {
		all.Add(1)
		go func(i int, seed int64) {
			defer all.Done()
			one := &scene{Rand: s0(seed)}
			c, err := net.Dial("tcp4", listener.Addr().String())
			must(err)
			defer c.Close()
			for rounds := one.Intn(40); rounds > 0; rounds-- {
				sent := random(one.Rand, 1+one.Intn(8000))
				_, err := c.Write(sent)
				must(err)
				got := make([]byte, len(sent))
				_, err = io.ReadFull(c, got)
				answers[i] += strconv.FormatBool(bytes.Equal(sent, got))[:1] + word(err)[:1]
			}
		}(i, s.Int63())
	}
	all.Wait()
	listener.Close()
	for i, answer := range answers {
		s.say("%d: %s", i, answer)
	}
}

// stalls: a writer whose reader stands still meets its deadline; what it wrote is what then comes.
func stalls(s *scene) {
	a, b := pair(s)
	for rounds := 1 + s.Intn(3); rounds > 0; rounds-- {
		sent := random(s.Rand, 24<<20)
		a.SetWriteDeadline(time.Now().Add(time.Duration(5+s.Intn(40)) * time.Millisecond))
		n, err := a.Write(sent)
		// How much went depends on when: none, where the goroutine was late.
		s.say("stalled: %s, all: %v", word(err), n == len(sent))
		a.SetWriteDeadline(time.Time{})
		got := make([]byte, n)
		_, err = io.ReadFull(b, got)
		s.say("what came: %s, the same: %v", word(err), bytes.Equal(got, sent[:n]))
		transfer(s, a, b, size(s.Rand))
		transfer(s, b, a, size(s.Rand))
	}
	a.Close()
	rest, err := io.ReadAll(b)
	s.say("ended: %d, %s", len(rest), word(err))
	b.Close()
}

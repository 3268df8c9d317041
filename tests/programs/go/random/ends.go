package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

func s0(seed int64) *rand.Rand { return rand.New(rand.NewSource(seed)) }

// endings: connections, each of which ends in one way.
func endings(s *scene) {
	for rounds := 3 + s.Intn(8); rounds > 0; rounds-- {
		a, b := pair(s)
		if s.Intn(2) == 0 {
			transfer(s, a, b, size(s.Rand))
		}
		how := s.Intn(8)
		s.say("ending %d", how)
		[]func(*scene, *net.TCPConn, *net.TCPConn){halves, interrupted, reset, unread, gone, deaf, both2, silent}[how](s, a, b)
		a.Close()
		b.Close()
		_, err := a.Write([]byte("x"))
		_, again := b.Read(make([]byte, 1))
		s.say("after that: %s, %s, %s", word(err), word(again), word(a.Close()))
	}
}

// reads says what a read of one byte answers.
func reads(s *scene, who string, c *net.TCPConn) {
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := c.Read(make([]byte, 1))
	s.say("%s reads %d, %s", who, n, word(err))
}

func writes(s *scene, who string, c *net.TCPConn) {
	n, err := c.Write([]byte("x"))
	s.say("%s writes %d, %s", who, n, word(err))
}

func halves(s *scene, a, b *net.TCPConn) {
	s.say("%s", word(a.CloseWrite()))
	reads(s, "b", b)
	reads(s, "b", b)
	transfer(s, b, a, size(s.Rand))
	writes(s, "a", a)
	s.say("%s", word(b.CloseWrite()))
	reads(s, "a", a)
	writes(s, "b", b)
}

// interrupted: somebody closes under a read, and under a write.
func interrupted(s *scene, a, b *net.TCPConn) {
	pause := time.Duration(s.Intn(3000)) * time.Microsecond
	if s.Intn(2) == 0 {
		go func() { time.Sleep(pause); a.Close() }()
		reads(s, "a", a)
		reads(s, "b", b)
		return
	}
	ended := make(chan struct{})
	go func() {
		_, err := io.Copy(a, forever{})
		s.say("under a write: %s", word(err))
		close(ended)
	}()
	time.Sleep(pause)
	a.Close()
	<-ended
	_, err := io.Copy(io.Discard, b)
	s.say("b: %s", word(err))
}

type forever struct{}

func (forever) Read(buffer []byte) (int, error) { return len(buffer), nil }

// reset: nobody has anything to read, and one end says that it lingers not.
func reset(s *scene, a, b *net.TCPConn) {
	s.say("%s, %s", word(a.SetLinger(0)), word(a.Close()))
	reads(s, "b", b)
	reads(s, "b", b)
	writes(s, "b", b)
}

// unread: an end closes with something unread.
func unread(s *scene, a, b *net.TCPConn) {
	writes(s, "a", a)
	s.say("%d waits, %s", waiting(b, 1), word(b.Close()))
	reads(s, "a", a)
	reads(s, "a", a)
}

// resets: many of those.
func resets(s *scene) {
	for rounds := 60; rounds > 0; rounds-- {
		a, b := pair(s)
		if s.Intn(2) == 0 {
			transfer(s, a, b, size(s.Rand))
		}
		unread(s, a, b)
		if s.refused {
			writes(s, "a", a)
		}
		a.Close()
	}
}

// gone: the other end has closed, with all read; the first write cannot know.
func gone(s *scene, a, b *net.TCPConn) {
	s.say("%s", word(b.Close()))
	if s.Intn(2) == 0 {
		reads(s, "a", a)
	} else {
		// A write before the end has come is answered by another error than one after it.
		time.Sleep(20 * time.Millisecond)
	}
	writes(s, "a", a)
	time.Sleep(20 * time.Millisecond)
	writes(s, "a", a)
	reads(s, "a", a)
}

// deaf: an end that reads no more hears of an end.
func deaf(s *scene, a, b *net.TCPConn) {
	s.say("%s", word(a.CloseRead()))
	reads(s, "a", a)
	transfer(s, a, b, size(s.Rand))
	s.say("%s", word(a.CloseWrite()))
	reads(s, "b", b)
}

// both2: both ends close at once.
func both2(s *scene, a, b *net.TCPConn) {
	var all sync.WaitGroup
	for _, c := range []*net.TCPConn{a, b} {
		all.Add(1)
		go func(c *net.TCPConn) { defer all.Done(); c.Close() }(c)
	}
	all.Wait()
	reads(s, "a", a)
}

// silent: the last words come before the end.
func silent(s *scene, a, b *net.TCPConn) {
	last := random(s.Rand, size(s.Rand))
	go func() { a.Write(last); a.Close() }()
	got, err := io.ReadAll(b)
	s.say("%d bytes, %s, the same: %v", len(got), word(err), bytes.Equal(last, got))
}

// listeners: deadlines, closes, and dials to what is not there.
func listeners(s *scene) {
	for rounds := 3 + s.Intn(5); rounds > 0; rounds-- {
		listener := listen()
		address := listener.Addr().String()
		switch s.Intn(4) {
		case 0:
			listener.SetDeadline(time.Now().Add(time.Duration(s.Intn(3)) * time.Millisecond))
			_, err := listener.Accept()
			s.say("nobody: %s", word(err))
			listener.SetDeadline(time.Time{})
		case 1:
			closed := make(chan struct{})
			go func() { time.Sleep(time.Millisecond); listener.Close(); close(closed) }()
			_, err := listener.Accept()
			s.say("closed under it: %s", word(err))
			<-closed
		case 2:
			listener.Close()
			_, err := net.DialTimeout("tcp4", address, 10*time.Second)
			s.say("nobody there: %s", word(err))
		default:
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_, err := (&net.Dialer{}).DialContext(ended, "tcp4", address)
			s.say("too late: %v", err != nil && strings.Contains(err.Error(), "cancel"))
		}
		queued(s, listener)
		listener.Close()
	}
}

// queued: connections that write before they are accepted.
func queued(s *scene, listener *net.TCPListener) {
	var dialed []net.Conn
	for i := s.Intn(6); i >= 0; i-- {
		c, err := net.DialTimeout("tcp4", listener.Addr().String(), 10*time.Second)
		if err != nil {
			// (Refused or reset: which of the two is a matter of the moment.)
			s.say("cannot be dialed")
			return
		}
		fmt.Fprintf(c, "%04d", i)
		dialed = append(dialed, c)
	}
	for range dialed {
		c, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			// It was closed before, and its port is another program's by now.
			s.say("cannot be dialed")
			return
		}
		must(err)
		got := make([]byte, 4)
		_, err = io.ReadFull(c, got)
		s.say("accepted %s, %s", got, word(err))
		c.Close()
	}
	for _, c := range dialed {
		_, err := c.Read(make([]byte, 1))
		s.say("its end: %s", word(err))
		c.Close()
	}
}

// child: a connection that was used is another process's too, and this one's again.
func child(s *scene) {
	a, b := pair(s)
	defer a.Close()
	defer b.Close()
	for rounds := 1 + s.Intn(3); rounds > 0; rounds-- {
		transfer(s, a, b, size(s.Rand))
		transfer(s, b, a, size(s.Rand))
		file, err := b.File()
		must(err)
		count := 1 + s.Intn(60)
		command := exec.Command(os.Args[0], "echo", fmt.Sprint(count))
		command.ExtraFiles = []*os.File{file}
		command.Stderr = os.Stderr
		must(command.Start())
		file.Close()
		same := 0
		for i := 0; i < count; i++ {
			sent, got := random(s.Rand, 1000), make([]byte, 1000)
			_, err := a.Write(sent)
			must(err)
			_, err = io.ReadFull(a, got)
			must(err)
			if bytes.Equal(sent, got) {
				same++
			}
		}
		s.say("by a child: %d of %d, %s", same, count, word(command.Wait()))
		out, err := exec.Command(os.Args[0], "say", "hello").CombinedOutput()
		s.say("a child says %s, %s", out, word(err))
	}
}

func echoInherited(words []string) {
	c, err := net.FileConn(os.NewFile(3, "inherited"))
	must(err)
	var count int
	fmt.Sscan(words[0], &count)
	buffer := make([]byte, 1000)
	for ; count > 0; count-- {
		_, err = io.ReadFull(c, buffer)
		must(err)
		_, err = c.Write(buffer)
		must(err)
	}
}

func say(words []string) { fmt.Print(words) }

// Adder answers calls of net/rpc.
type Adder struct{}

// Add adds a slice up.
func (Adder) Add(numbers []int, sum *int) error {
	for _, number := range numbers {
		*sum += number
	}
	return nil
}

// calls: net/rpc, many at once on one connection.
func calls(s *scene) {
	a, b := pair(s)
	server := rpc.NewServer()
	must(server.Register(Adder{}))
	served := make(chan struct{})
	go func() { server.ServeConn(b); close(served) }()
	client := rpc.NewClient(a)
	var under []*rpc.Call
	for i := 50 + s.Intn(400); i > 0; i-- {
		numbers := make([]int, s.Intn(300))
		for at := range numbers {
			numbers[at] = s.Intn(1000)
		}
		under = append(under, client.Go("Adder.Add", numbers, new(int), make(chan *rpc.Call, 1)))
	}
	sum := 0
	for _, call := range under {
		<-call.Done
		sum += *call.Reply.(*int)
		if call.Error != nil {
			s.say("%v", call.Error)
		}
	}
	s.say("%d calls: %d, %s", len(under), sum, word(client.Close()))
	<-served
}

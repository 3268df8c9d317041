package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// server is what programs have that do without Go's net: sockets and an epoll set of their own.
type server struct {
	set, listener int
	edges, once   bool
	waiting       map[int][]byte
	ended         map[int]bool
}

// bound is a listening socket, and where.
func bound(flags int) (int, *net.TCPAddr) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|flags, 0)
	must(err)
	must(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(syscall.Listen(fd, 100))
	name, err := syscall.Getsockname(fd)
	must(err)
	return fd, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
}

func (s *server) interest(fd int) *syscall.EpollEvent {
	const edges, once = 1 << 31, 1 << 30
	event := &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
	if s.edges || len(s.waiting[fd]) > 0 {
		event.Events |= syscall.EPOLLOUT
	}
	if s.ended[fd] {
		event.Events &^= syscall.EPOLLIN
	}
	if s.edges {
		event.Events |= edges
	}
	if s.once {
		event.Events |= once
	}
	return event
}

// run answers with what it is sent, until somebody writes into the pipe.
func (s *server) run(end int) {
	events, buffer := make([]syscall.EpollEvent, 8), make([]byte, 5000)
	for {
		n, err := syscall.EpollWait(s.set, events, -1)
		if err == syscall.EINTR {
			continue
		}
		must(err)
		for _, event := range events[:n] {
			switch fd := int(event.Fd); fd {
			case end:
				return
			case s.listener:
				s.accept()
			default:
				s.serve(fd, buffer)
			}
		}
	}
}

func (s *server) accept() {
	for {
		fd, _, err := syscall.Accept4(s.listener, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		must(syscall.EpollCtl(s.set, syscall.EPOLL_CTL_ADD, fd, s.interest(fd)))
	}
}

// serve reads what there is, or where there are no edges some of it, and writes what can be written.
func (s *server) serve(fd int, buffer []byte) {
	for !s.ended[fd] && len(s.waiting[fd]) < 1<<20 {
		n, err := syscall.Read(fd, buffer)
		if err == syscall.EAGAIN {
			break
		}
		if err != nil || n == 0 {
			s.ended[fd] = true
			break
		}
		s.waiting[fd] = append(s.waiting[fd], buffer[:n]...)
		if !s.edges {
			break
		}
	}
	for len(s.waiting[fd]) > 0 {
		n, err := syscall.Write(fd, s.waiting[fd])
		if err == syscall.EAGAIN {
			break
		}
		if err != nil {
			s.ended[fd], s.waiting[fd] = true, nil
			break
		}
		if s.waiting[fd] = s.waiting[fd][n:]; s.edges && !s.ended[fd] {
			// What was left unread, as too much waited, has no edge any more.
			s.serve(fd, buffer)
			return
		}
	}
	if s.ended[fd] && len(s.waiting[fd]) == 0 {
		delete(s.waiting, fd)
		delete(s.ended, fd)
		alone(func() { must(syscall.Close(fd)) })
		return
	}
	if !s.edges || s.once {
		must(syscall.EpollCtl(s.set, syscall.EPOLL_CTL_MOD, fd, s.interest(fd)))
	}
}

// loops: such a server, with clients of Go's net and such as block in a call.
func loops(s *scene) {
	set, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	must(err)
	listener, address := bound(syscall.SOCK_NONBLOCK)
	server := &server{set: set, listener: listener, edges: s.Intn(2) == 0, once: s.Intn(3) == 0,
		waiting: map[int][]byte{}, ended: map[int]bool{}}
	var pipe [2]int
	must(syscall.Pipe2(pipe[:], syscall.O_CLOEXEC))
	for _, fd := range []int{listener, pipe[0]} {
		must(syscall.EpollCtl(set, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}))
	}
	ended := make(chan struct{})
	go func() { server.run(pipe[0]); close(ended) }()
	said := make([]*scene, 1+s.Intn(12))
	var all sync.WaitGroup
	for i := range said {
		said[i] = &scene{Rand: s.part(), name: fmt.Sprintf("%s %d", s.name, i)}
		all.Add(1)
		go func(one *scene) {
			defer all.Done()
			if one.Intn(2) == 0 {
				blocks(one, address)
			} else {
				asksLoop(one, address)
			}
		}(said[i])
	}
	all.Wait()
	syscall.Write(pipe[1], []byte("x"))
	<-ended
	for _, one := range said {
		s.said.Write(one.said.Bytes())
	}
	for _, fd := range []int{set, listener, pipe[0], pipe[1]} {
		must(syscall.Close(fd))
	}
}

// asksLoop sends and receives at once, and ends its half first.
func asksLoop(s *scene, address *net.TCPAddr) {
	c, err := net.DialTCP("tcp4", nil, address)
	must(err)
	defer c.Close()
	s.say("asked: %s", asked(s, c, s.Intn(40)))
	for rounds := 1 + s.Intn(4); rounds > 0; rounds-- {
		sent := random(s.Rand, size(s.Rand))
		got := make([]byte, len(sent))
		go c.Write(sent)
		_, err = io.ReadFull(c, got)
		s.say("%d bytes: %v, %s", len(sent), bytes.Equal(sent, got), word(err))
	}
	last := random(s.Rand, size(s.Rand))
	go func() { c.Write(last); c.CloseWrite() }()
	got, err := io.ReadAll(c)
	s.say("the last %d: %v, %s", len(last), bytes.Equal(last, got), word(err))
}

// blocks: a thread sits in each call, with the flags and limits that sockets have.
func blocks(s *scene, address *net.TCPAddr) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(err)
	defer syscall.Close(fd)
	must(syscall.Connect(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: address.Port}))
	for rounds := 1 + s.Intn(60); rounds > 0; rounds-- {
		sent := random(s.Rand, 1+s.Intn(6000))
		for rest := sent; len(rest) > 0; {
			n, err := syscall.Write(fd, rest)
			if err == syscall.EINTR {
				continue
			}
			must(err)
			rest = rest[n:]
		}
		got := make([]byte, len(sent))
		way := s.Intn(4)
		s.say("%d by %d: %s, %v", len(sent), way, word(fills(fd, got, way)), bytes.Equal(sent, got))
	}
	limit := syscall.Timeval{Usec: 1 + s.Int63n(20000)}
	must(syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit))
	begin := time.Now()
	_, err = uninterrupted(fd)
	// (The kernel counts in ticks, of which the first has begun.)
	early := time.Since(begin)+10*time.Millisecond < time.Duration(limit.Usec)*time.Microsecond
	s.say("nothing: %s, early: %v", word(err), early)
	_, _, err = syscall.Recvfrom(fd, make([]byte, 5), syscall.MSG_DONTWAIT)
	s.say("nothing: %s", word(err))
	must(syscall.Shutdown(fd, syscall.SHUT_WR))
	limit.Sec = 20
	must(syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit))
	n, err := uninterrupted(fd)
	s.say("its end: %d, %s", n, word(err))
}

// uninterrupted: no signal ends this read. (With a limit of time no handler restarts it.)
func uninterrupted(fd int) (int, error) {
	for {
		if n, err := syscall.Read(fd, make([]byte, 5)); err != syscall.EINTR {
			return n, err
		}
	}
}

// fills reads so many bytes, by one of the ways.
func fills(fd int, got []byte, way int) error {
	const all, some = 0x100, 0x40
	for len(got) > 0 {
		var n int
		var err error
		switch way {
		case 0:
			n, err = syscall.Read(fd, got)
		case 1:
			n, _, err = syscall.Recvfrom(fd, got, all)
		case 2:
			if n, _, err = syscall.Recvfrom(fd, got, some); err == syscall.EAGAIN {
				time.Sleep(50 * time.Microsecond)
			}
		default:
			n, _, _, _, err = syscall.Recvmsg(fd, got, nil, 0)
		}
		if err == syscall.EAGAIN || err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		got = got[n:]
	}
	return nil
}

// others: bytes go from connections into pipes, Unix sockets and files, and out of them.
func others(s *scene) {
	for rounds := 2 + s.Intn(6); rounds > 0; rounds-- {
		a, b := pair(s)
		c, d := pair(s)
		sent := random(s.Rand, size(s.Rand))
		written := make(chan error, 2)
		go func() {
			_, err := a.Write(sent)
			a.CloseWrite()
			written <- err
		}()
		var in io.WriteCloser
		var out io.ReadCloser
		how := s.Intn(3)
		switch how {
		case 0:
			reader, writer, err := os.Pipe()
			must(err)
			in, out = writer, reader
		case 1:
			near, file := unix()
			far, err := net.FileConn(file)
			must(err)
			file.Close()
			in, out = near, far.(*net.UnixConn)
		default:
			in, out = c2(s)
		}
		go func() {
			_, err := io.Copy(in, b)
			in.Close()
			written <- err
		}()
		go func() { io.Copy(c, out); c.CloseWrite() }()
		got, err := io.ReadAll(d)
		s.say("%d bytes by %d: %v, %s, %s, %s", len(sent), how, bytes.Equal(sent, got), word(err), word(<-written), word(<-written))
		out.Close()
		for _, c := range []*net.TCPConn{a, b, c, d} {
			c.Close()
		}
	}
	silentPipes(s)
}

// c2 is a connection, as what is written into and read from.
func c2(s *scene) (io.WriteCloser, io.ReadCloser) {
	a, b := pair(s)
	return a, b
}

// silentPipes: pipes have deadlines and closes too, beside connections in one epoll set.
func silentPipes(s *scene) {
	reader, writer, err := os.Pipe()
	must(err)
	buffer := make([]byte, 10)
	for i := 1 + s.Intn(4); i > 0; i-- {
		must(reader.SetReadDeadline(time.Now().Add(time.Duration(s.Intn(2000)) * time.Microsecond)))
		_, err = reader.Read(buffer)
		s.say("a silent pipe: %s", word(err))
	}
	must(reader.SetReadDeadline(time.Time{}))
	go func() { time.Sleep(time.Millisecond); reader.Close() }()
	_, err = reader.Read(buffer)
	s.say("closed under it: %s", word(err))
	writer.Close()
}

// few: connections are opened until there are no more numbers for them; those that are open go on, and once
// some are closed there are numbers again. In a process of its own.
func few(s *scene) {
	out, err := exec.Command(os.Args[0], "fill", fmt.Sprint(s.Int63()), fmt.Sprint(60+s.Intn(400))).CombinedOutput()
	s.say("%s%s", out, word(err))
}

func fill(words []string) {
	var seed int64
	var limit uint64
	fmt.Sscan(words[0], &seed)
	fmt.Sscan(words[1], &limit)
	s := &scene{Rand: s0(seed), name: "few"}
	listener := listen()
	go func() {
		for {
			c, err := listener.AcceptTCP()
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			// Not by splice, which takes pipes, and so numbers.
			go func() { io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}); c.Close() }()
		}
	}()
	must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}))
	dial := func() (*net.TCPConn, error) { return net.DialTCP("tcp4", nil, listener.Addr().(*net.TCPAddr)) }
	var all []*net.TCPConn
	for {
		c, err := dial()
		if err != nil {
			s.say("%s", word(err))
			break
		}
		all = append(all, c)
	}
	for rounds := 0; rounds < 3; rounds++ {
		closed := len(all) * 2 / 3
		for _, c := range all[:closed] {
			c.Close()
		}
		all = all[closed:]
		same := true
		for _, c := range all {
			same = same && asked(s, c, 12) == "12 of 12"
		}
		s.say("the rest is answered: %v", same)
		c, err := dial()
		s.say("another: %s, %s", word(err), asked(s, c, 12))
		c.Close()
	}
	os.Stdout.Write(s.said.Bytes())
}

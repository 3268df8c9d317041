package main

import (
	"bufio"
	"bytes"
	"io"
	"math/rand"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

func listen() *net.TCPListener {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(err)
	return listener
}

var leaked []*os.File

// pair is a connection's two ends; up to twenty exchanges have gone by, or none.
func pair(s *scene) (*net.TCPConn, *net.TCPConn) {
	listener := listen()
	defer listener.Close()
	a, err := net.DialTCP("tcp4", nil, listener.Addr().(*net.TCPAddr))
	must(err)
	if fault == "leak" {
		file, err := a.File()
		must(err)
		leaked = append(leaked, file)
	}
	b, err := listener.AcceptTCP()
	must(err)
	warm(a, b, s.Intn(21))
	return a, b
}

func warm(a, b net.Conn, rounds int) {
	buffer := make([]byte, 5)
	for i := 0; i < rounds; i++ {
		for _, ends := range [][2]net.Conn{{a, b}, {b, a}} {
			_, err := ends[0].Write([]byte("hello"))
			must(err)
			_, err = io.ReadFull(ends[1], buffer)
			must(err)
		}
	}
}

// raw makes a system call of the program's own on a connection, until it does not say EAGAIN.
func raw(c *net.TCPConn, writes bool, call func(fd int) (int, error)) (n int, err error) {
	way, err := c.SyscallConn()
	must(err)
	attempt := func(fd uintptr) bool {
		n, err = call(int(fd))
		return err != syscall.EAGAIN
	}
	var failed error
	if writes {
		failed = way.Write(attempt)
	} else {
		failed = way.Read(attempt)
	}
	if failed != nil {
		return 0, failed
	}
	return n, err
}

// The ways to write all of it.
var writers = []func(*rand.Rand, *net.TCPConn, []byte) error{
	func(_ *rand.Rand, c *net.TCPConn, all []byte) error { _, err := c.Write(all); return err },
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		for len(all) > 0 {
			n := 1 + r.Intn(1+len(all)/(1+r.Intn(9)))
			if n > len(all) {
				n = len(all)
			}
			if _, err := c.Write(all[:n]); err != nil {
				return err
			}
			all = all[n:]
		}
		return nil
	},
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		var parts net.Buffers
		for len(all) > 0 {
			n := 1 + r.Intn(len(all))
			parts, all = append(parts, all[:n]), all[n:]
		}
		_, err := parts.WriteTo(c)
		return err
	},
	// In more parts than one call takes, some of them empty.
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		parts, each := make(net.Buffers, 0, 3000), 1+len(all)/2500
		for len(all) > 0 {
			n := r.Intn(2 * each)
			if n > len(all) {
				n = len(all)
			}
			parts, all = append(parts, all[:n]), all[n:]
		}
		if last := len(parts) - 1; fault == "parts" && last > 0 {
			parts[0], parts[last] = parts[last], parts[0]
		}
		_, err := parts.WriteTo(c)
		return err
	},
	// With deadlines that pass under it, and are taken back.
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		end := moving(c.SetWriteDeadline)
		defer end()
		for len(all) > 0 {
			n, err := c.Write(all)
			all = all[n:]
			if err != nil && word(err) != "deadline" {
				return err
			}
		}
		return nil
	},
	// By sendfile, from somewhere within a file.
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		file, err := os.CreateTemp("", "random")
		must(err)
		defer file.Close()
		defer os.Remove(file.Name())
		_, err = file.Write(append(make([]byte, 100), append(all, 1, 2, 3)...))
		must(err)
		_, err = file.Seek(100, io.SeekStart)
		must(err)
		n, err := c.ReadFrom(io.LimitReader(file, int64(len(all))))
		if err == nil && int(n) != len(all) {
			return io.ErrShortWrite
		}
		return err
	},
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		for len(all) > 0 {
			n, err := raw(c, true, func(fd int) (int, error) { return syscall.Write(fd, all) })
			if err != nil {
				return err
			}
			all = all[n:]
		}
		return nil
	},
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		file, err := c.File()
		must(err)
		defer file.Close()
		_, err = file.Write(all)
		return err
	},
}

// moving has a deadline lie in the past and in the future in turn, until what it returns is called.
func moving(set func(time.Time) error) func() {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for past := false; ; past = !past {
			pause := 300 * time.Microsecond
			if past {
				pause = 30 * time.Microsecond
				set(time.Unix(1, 0))
			} else {
				set(time.Time{})
			}
			select {
			case <-end:
				set(time.Time{})
				return
			case <-time.After(pause):
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// The ways to read so many bytes.
var readers = []func(*rand.Rand, *net.TCPConn, []byte) error{
	func(_ *rand.Rand, c *net.TCPConn, all []byte) error { _, err := io.ReadFull(c, all); return err },
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		for len(all) > 0 {
			n, err := c.Read(all[:1+r.Intn(len(all))])
			if err != nil {
				return err
			}
			all = all[n:]
		}
		return nil
	},
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		_, err := io.ReadFull(bufio.NewReaderSize(io.LimitReader(c, int64(len(all))), 16+r.Intn(9000)), all)
		return err
	},
	// A look before each read.
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		for len(all) > 0 {
			seen := make([]byte, 1+r.Intn(len(all)))
			n, err := raw(c, false, func(fd int) (int, error) {
				n, _, err := syscall.Recvfrom(fd, seen, syscall.MSG_PEEK)
				return n, err
			})
			if err != nil || n == 0 {
				return err
			}
			if _, err = io.ReadFull(c, all[:n]); err != nil {
				return err
			}
			if !bytes.Equal(seen[:n], all[:n]) {
				return io.ErrNoProgress
			}
			all = all[n:]
		}
		return nil
	},
	// With a deadline that is met again and again.
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		defer c.SetReadDeadline(time.Time{})
		for len(all) > 0 {
			c.SetReadDeadline(time.Now().Add(time.Duration(r.Intn(900)) * time.Microsecond))
			n, err := c.Read(all)
			all = all[n:]
			if err != nil && word(err) != "deadline" {
				return err
			}
		}
		return nil
	},
	// With deadlines that change under it.
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		end, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; ; i++ {
				select {
				case <-end:
					c.SetDeadline(time.Time{})
					return
				default:
					c.SetDeadline(time.Now().Add(time.Duration(1+i%1000) * time.Hour))
				}
			}
		}()
		_, err := io.ReadFull(c, all)
		close(end)
		<-ended
		return err
	},
	// With deadlines that pass under it, and are taken back.
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		end := moving(c.SetReadDeadline)
		defer end()
		for len(all) > 0 {
			n, err := c.Read(all)
			all = all[n:]
			if err != nil && word(err) != "deadline" {
				return err
			}
		}
		return nil
	},
	func(r *rand.Rand, c *net.TCPConn, all []byte) error {
		file, err := os.CreateTemp("", "random")
		must(err)
		defer file.Close()
		defer os.Remove(file.Name())
		if _, err = io.CopyN(file, c, int64(len(all))); err != nil {
			return err
		}
		_, err = file.ReadAt(all, 0)
		return err
	},
}

// transfer sends random bytes one way, in a random way at each end.
func transfer(s *scene, from, to *net.TCPConn, size int) {
	sent, got := random(s.Rand, size), make([]byte, size)
	how, at := s.Intn(len(writers)), s.Intn(len(readers))
	writes, reads := s.part(), s.part()
	written := make(chan error, 1)
	go func() { written <- writers[how](writes, from, sent) }()
	err := readers[at](reads, to, got)
	if fault == "byte" && size%5 == 0 {
		got[size/2]++
	}
	s.say("%d bytes by %d to %d: %s, %s, the same: %v", size, how, at, word(<-written), word(err), bytes.Equal(sent, got))
}

// waiting says how many bytes can be read, once it is so many.
func waiting(c *net.TCPConn, wanted int) int {
	found := 0
	for i := 0; i < 2000; i++ {
		number := int32(0)
		raw(c, false, func(fd int) (int, error) {
			_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCINQ, uintptr(unsafe.Pointer(&number)))
			if failed != 0 {
				return 0, failed
			}
			return 0, nil
		})
		if found = int(number); found == wanted {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return found
}

// The workloads for Go: package net on both ends, as a program in Go has it. Nothing here knows of Ginnel.
// Options and result lines are those of the programs in C (common.h).
package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	addr        = flag.String("addr", "127.0.0.1:0", "ADDRESS:PORT")
	mode        = flag.String("mode", "pingpong", "pingpong, stream, or call")
	size        = flag.Int("size", 64, "bytes of one message or one write")
	seconds     = flag.Float64("seconds", 0.3, "how long to measure")
	connections = flag.Int("connections", 1, "at once")
	warmup      = flag.Int("warmup", 200, "exchanges on each before measuring")
	_           = flag.Int("cpu", -1, "not heeded: a program in Go has the threads that it likes")
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func cpu() int64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// exchange says something, and hears it again.
func exchange(connection net.Conn, said, heard []byte, number uint64) {
	binary.LittleEndian.PutUint64(said, number)
	_, err := connection.Write(said)
	must(err)
	_, err = io.ReadFull(connection, heard)
	must(err)
	if !bytes.Equal(said, heard) {
		must(fmt.Errorf("message %d expected, another came", number))
	}
}

// answer sends back what it is sent; of a stream it takes what follows the first messages.
func answer(connection net.Conn, began *sync.Once, begin func()) {
	message := make([]byte, *size)
	for i := 0; i < *warmup; i++ {
		if _, err := io.ReadFull(connection, message); err != nil {
			must(err)
		}
		_, err := connection.Write(message)
		must(err)
	}
	began.Do(begin)
	if *mode == "stream" {
		room := make([]byte, 128<<10)
		for {
			if _, err := connection.Read(room); err != nil {
				return
			}
		}
	}
	for {
		if _, err := io.ReadFull(connection, message); err != nil {
			return
		}
		if _, err := connection.Write(message); err != nil {
			return
		}
	}
}

func server() {
	listener, err := net.Listen("tcp", *addr)
	must(err)
	fmt.Println("listening", listener.Addr().(*net.TCPAddr).Port)
	var began sync.Once
	var spent int64
	var begun time.Time
	var all sync.WaitGroup
	for i := 0; i < *connections; i++ {
		connection, err := listener.Accept()
		must(err)
		all.Add(1)
		go func() {
			defer all.Done()
			defer connection.Close()
			answer(connection, &began, func() { spent, begun = cpu(), time.Now() })
		}()
	}
	all.Wait()
	fmt.Printf("result elapsed_ns=%d cpu_ns=%d\n", time.Since(begun).Nanoseconds(), cpu()-spent)
}

// calls times a system call that is not about sockets, a thousand together.
func calls(until time.Time) {
	var samples []float64
	for time.Now().Before(until) {
		begin := time.Now()
		for i := 0; i < 1000; i++ {
			syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0)
		}
		samples = append(samples, float64(time.Since(begin).Nanoseconds())/1000)
	}
	sort.Float64s(samples)
	fmt.Printf("result samples=%d p50_ns=%.1f\n", len(samples), samples[len(samples)/2])
}

func client() {
	talks := make([]net.Conn, *connections)
	var all sync.WaitGroup
	for i := range talks {
		connection, err := net.Dial("tcp", *addr)
		must(err)
		talks[i] = connection
		all.Add(1)
		go func() {
			defer all.Done()
			said, heard := make([]byte, *size), make([]byte, *size)
			for number := 0; number < *warmup; number++ {
				exchange(connection, said, heard, uint64(number))
			}
		}()
	}
	all.Wait()
	var count atomic.Int64
	begin, spent := time.Now(), cpu()
	until := begin.Add(time.Duration(*seconds * 1e9))
	if *mode == "call" {
		calls(until)
	}
	for _, connection := range talks {
		if *mode == "call" {
			break
		}
		all.Add(1)
		connection := connection
		go func() {
			defer all.Done()
			said, heard := make([]byte, *size), make([]byte, *size)
			done := int64(0)
			for number := uint64(0); number%16 != 0 || time.Now().Before(until); number++ {
				if *mode == "stream" {
					_, err := connection.Write(said)
					must(err)
				} else {
					exchange(connection, said, heard, number)
				}
				done++
			}
			count.Add(done)
		}()
	}
	all.Wait()
	elapsed, used := time.Since(begin), cpu()-spent
	for _, connection := range talks {
		connection.Close()
	}
	if *mode != "call" {
		rate := float64(count.Load()) / elapsed.Seconds()
		fmt.Printf("result exchanges=%d bytes=%d elapsed_ns=%d cpu_ns=%d per_s=%.0f bytes_per_s=%.0f\n", count.Load(),
			count.Load()*int64(*size), elapsed.Nanoseconds(), used, rate, rate*float64(*size))
	}
}

func main() {
	role := os.Args[1]
	must(flag.CommandLine.Parse(os.Args[2:]))
	// Whoever measures may be gone.
	time.AfterFunc(time.Minute, func() { os.Exit(3) })
	if role == "server" {
		server()
	} else {
		client()
	}
	fmt.Println("end")
}

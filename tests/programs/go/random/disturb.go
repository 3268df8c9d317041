package main

import (
	"bytes"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// disturb begins some of what must change no answer; what it returns ends that.
func disturb(r *rand.Rand) func() {
	var all sync.WaitGroup
	end := make(chan struct{})
	repeat := func(pause time.Duration, do func()) {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				select {
				case <-end:
					return
				case <-time.After(pause):
					do()
				}
			}
		}()
	}
	chosen := func() bool { return r.Intn(4) == 0 }
	if chosen() {
		debug.SetGCPercent(10)
		var keep [][]byte
		repeat(100*time.Microsecond, func() {
			keep = append(keep, make([]byte, 3000))
			if len(keep) > 300 {
				keep = nil
			}
			deep(300)
		})
	}
	if chosen() {
		next := 1
		repeat(time.Millisecond, func() { runtime.GOMAXPROCS(next); next = 1 + next%4 })
	}
	if chosen() {
		if chosen() {
			// A signal of the profiler's each millisecond, rather than each tenth.
			runtime.SetCPUProfileRate(1000)
		}
		pprof.StartCPUProfile(&bytes.Buffer{})
	} else if chosen() {
		trace.Start(&bytes.Buffer{})
	}
	if chosen() {
		repeat(50*time.Microsecond, func() { syscall.Kill(os.Getpid(), syscall.SIGURG) })
	}
	if chosen() {
		repeat(300*time.Microsecond, func() { go func() { runtime.LockOSThread() }() })
	}
	if chosen() {
		repeat(3*time.Millisecond, debug.FreeOSMemory)
	}
	stopped := func() {}
	if chosen() {
		stopper := exec.Command(os.Args[0], "stop", strconv.Itoa(os.Getpid()))
		input, err := stopper.StdinPipe()
		must(err)
		must(stopper.Start())
		stopped = func() {
			input.Close()
			must(stopper.Wait())
		}
	}
	return func() {
		close(end)
		all.Wait()
		pprof.StopCPUProfile()
		trace.Stop()
		stopped()
	}
}

func deep(depth int) int {
	var room [200]byte
	room[depth%200] = byte(depth)
	if depth == 0 {
		return int(room[0])
	}
	return deep(depth-1) + int(room[depth%200])
}

// stop: stops a process again and again, each time for a moment, until its input ends. Who would kill it
// might kill it while the process is stopped.
func stop(words []string) {
	pid, err := strconv.Atoi(words[0])
	must(err)
	ended := make(chan struct{})
	go func() { io.Copy(io.Discard, os.Stdin); close(ended) }()
	for i := 0; i < 300; i++ {
		syscall.Kill(pid, syscall.SIGSTOP)
		time.Sleep(time.Duration(i%7) * time.Millisecond)
		syscall.Kill(pid, syscall.SIGCONT)
		select {
		case <-ended:
			return
		case <-time.After(time.Duration(i%40) * time.Millisecond):
		}
	}
}

// A random program that knows nothing of Ginnel: random SEED [SCENES] says what its calls answered,
// scene by scene, in an order that follows from the seed alone. Two runs of one seed say the same, whatever
// carries the bytes and whoever runs when. Works with every Go from 1.19 on.
//
// What timing decides (how much a full buffer takes, how often a read returns) is never said, but judged:
// "the same bytes", "at its deadline".
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A scene has its own random numbers and its own words: it says the same whoever runs beside it.
type scene struct {
	*rand.Rand
	name string
	said bytes.Buffer
	// Whether a write after a reset is tried.
	refused bool
}

func (s *scene) say(format string, values ...any) {
	fmt.Fprintf(&s.said, s.name+": "+format+"\n", values...)
}

// part has random numbers of its own, for a goroutine.
func (s *scene) part() *rand.Rand { return rand.New(rand.NewSource(s.Int63())) }

// size is mostly small, and now and then more than a buffer takes.
func size(r *rand.Rand) int {
	switch r.Intn(8) {
	case 0:
		return 1 + r.Intn(1<<20)
	case 1, 2:
		return 1 + r.Intn(100_000)
	default:
		return 1 + r.Intn(2000)
	}
}

func random(r *rand.Rand, size int) []byte {
	bytes := make([]byte, size)
	r.Read(bytes)
	return bytes
}

// must ends the program where something fails that no random call can make fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// alone does something while no child has this process's files, as each has until it executes its program.
func alone(do func()) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	do()
}

// fault is planted by who tests the test.
var fault = os.Getenv("RANDOM_FAULT")

// word names an error the same way in every release.
func word(err error) string {
	var of *net.OpError
	var number syscall.Errno
	switch {
	case err == nil:
		return "well"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "cut"
	case errors.Is(err, io.EOF):
		return "EOF"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "deadline"
	case fault == "error" && errors.Is(err, net.ErrClosed):
		return "EOF"
	case errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed):
		return "closed"
	case errors.As(err, &number) && errors.As(err, &of):
		return fmt.Sprintf("%s: error %d", of.Op, int(number))
	case errors.As(err, &number):
		return fmt.Sprintf("error %d", int(number))
	}
	return err.Error()
}

// watch ends a program that hangs, with its goroutines. One that leaks on purpose is to hang.
func watch() {
	limit := 120 * time.Second
	if fault == "leak" {
		limit = 30 * time.Second
	}
	time.Sleep(limit)
	fmt.Println("it hangs")
	pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
	os.Exit(3)
}

func main() {
	helpers := map[string]func([]string){"echo": echoInherited, "relay": relay, "stop": stop, "say": say,
		"take": take, "serve": serve, "fill": fill, "self": self, "empty": empty, "turn": turn, "pour": pour,
		"panic": panicking, "pause": pause, "table": table}
	if helper, is := helpers[os.Getenv("RANDOM_HELPER")]; is {
		helper(nil)
		return
	}
	if helper, is := helpers[os.Args[1]]; is {
		helper(os.Args[2:])
		return
	}
	go watch()
	time.Sleep(time.Millisecond)
	seed, err := strconv.ParseInt(os.Args[1], 10, 64)
	must(err)
	r := rand.New(rand.NewSource(seed))
	// Made once, before anything is counted: the runtime's own descriptors.
	warmUp()
	goroutines, sockets := runtime.NumGoroutine(), count("socket:")
	calm := disturb(r)
	play(r, os.Args[2:])
	calm()
	left(goroutines, sockets)
}

func warmUp() {
	listener := listen()
	listener.Close()
}

// All scenes; a seed plays some of them at once, and some more than once.
var scenes = map[string]func(*scene){
	"stream": stream, "chain": chain, "crowd": crowd, "listeners": listeners, "web": web, "web2": web2,
	"hijack": hijack, "calls": calls, "child": child, "endings": endings, "stalls": stalls, "resets": resets,
	"refused": func(s *scene) { s.refused = true; resets(s) },
	"copies":  copies, "passed": passed, "restarts": restarts, "reuse": reuse, "loops": loops, "others": others, "few": few,
	"starts": starts, "storms": storms, "becomes": becomes, "broken": broken, "networks": networks, "tables": tables,
	"paths": paths, "secret": secret, "stops": stops, "beside": beside,
}

func play(r *rand.Rand, only []string) {
	names := []string{"becomes", "beside", "broken", "calls", "chain", "child", "copies", "crowd", "endings", "few", "hijack", "listeners", "loops",
		"networks", "others", "passed", "paths", "resets", "restarts", "reuse", "secret", "stalls", "starts", "stops",
		"storms", "stream", "tables", "web", "web2"}
	var all sync.WaitGroup
	var played []*scene
	for i := 0; i < 5; i++ {
		name := names[r.Intn(len(names))]
		if len(only) > 0 {
			name = only[i%len(only)]
		}
		s := &scene{Rand: rand.New(rand.NewSource(r.Int63())), name: fmt.Sprintf("%d %s", i, name)}
		played = append(played, s)
		all.Add(1)
		go func() {
			defer all.Done()
			scenes[name](s)
		}()
	}
	all.Wait()
	for _, s := range played {
		os.Stdout.Write(s.said.Bytes())
	}
}

// count says how many descriptors of a kind are open.
func count(kind string) int {
	files, _ := filepath.Glob("/proc/self/fd/*")
	found := 0
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, kind) {
			found++
		}
	}
	return found
}

// left says what does not end with the scenes.
func left(goroutines, sockets int) {
	for i := 0; i < 400; i++ {
		if runtime.NumGoroutine() <= goroutines && count("socket:") <= sockets {
			fmt.Println("nothing is left")
			return
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Printf("left: %d goroutines, %d sockets\n", runtime.NumGoroutine()-goroutines, count("socket:")-sockets)
	pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
}

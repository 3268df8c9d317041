// A program that knows nothing of Ginnel: one behaviour for each word that it is given. It says OK, or
// what went wrong, and works with every Go from 1.19 on.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func check(right bool, what ...any) {
	if !right {
		must(fmt.Errorf("%v", what))
	}
}

func main() {
	go func() {
		time.Sleep(100 * time.Second)
		fmt.Println("it hangs")
		panic("it hangs")
	}()
	words := map[string]func([]string){
		"echo": echo, "serve": serve, "ask": ask, "http": web, "exec": executes, "signals": signals,
		"collect": collect, "threads": threads, "fault": fault, "deadlines": deadlines, "own": own,
		"exit": exits, "crash": crash, "profile": profile, "user": user, "redis": redis, "many": many,
		"whoami": whoami, "replace": replace, "inherit": inherit, "inherited": inherited, "attend": attend,
		"namespaces": namespaces, "trace": traces, "forward": forward, "talk": talk, "host": host,
		"visit": visit, "share": shares, "files": files, "descend": descend,
		"lock": lock,
	}
	run, known := words[os.Args[1]]
	check(known, "no such word", os.Args[1])
	run(os.Args[2:])
	fmt.Println("OK")
}

func number(words []string, index, otherwise int) int {
	if index < len(words) {
		value, err := strconv.Atoi(words[index])
		must(err)
		return value
	}
	return otherwise
}

// answer sends back what it is sent.
func answer(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			io.Copy(struct{ io.Writer }{connection}, struct{ io.Reader }{connection})
		}()
	}
}

// over: the rounds end.
var over atomic.Bool

// rounds sends pieces of random sizes, and compares what comes back.
func rounds(address string, count int, seed int64) {
	connection, err := net.Dial("tcp", address)
	must(err)
	defer connection.Close()
	random := rand.New(rand.NewSource(seed))
	sent, got := make([]byte, 20000), make([]byte, 20000)
	for i := 0; i < count && !over.Load(); i++ {
		size := 1 + random.Intn(200)
		if i%50 == 49 {
			size = 1 + random.Intn(len(sent))
		}
		random.Read(sent[:size])
		_, err := connection.Write(sent[:size])
		must(err)
		_, err = io.ReadFull(connection, got[:size])
		must(err)
		check(bytes.Equal(sent[:size], got[:size]), "other bytes came back", i)
	}
}

func crowd(address string, connections, count int) {
	var all sync.WaitGroup
	for i := 0; i < connections; i++ {
		all.Add(1)
		go func(seed int64) {
			defer all.Done()
			rounds(address, count, seed)
		}(int64(i))
	}
	all.Wait()
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	return listener
}

// echo: both ends in this process. Connections, rounds.
func echo(words []string) {
	listener := listen()
	go answer(listener)
	crowd(listener.Addr().String(), number(words, 0, 16), number(words, 1, 500))
	listener.Close()
}

// passing takes connections, and has each answered as answer does, but by io.Copy alone: Go moves
// the bytes from socket to socket by splice(2). With another's address: joins each to that one.
func passing(listener net.Listener, other string) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			if other == "" {
				io.Copy(connection, connection)
				return
			}
			next, err := net.Dial("tcp", other)
			must(err)
			defer next.Close()
			go func() {
				io.Copy(next, connection)
				next.(*net.TCPConn).CloseWrite()
			}()
			io.Copy(connection, next)
		}()
	}
}

// forward: both ends in this process, and between them what moves bytes by splice(2). Connections,
// rounds.
func forward(words []string) {
	far, near := listen(), listen()
	go passing(far, "")
	go passing(near, far.Addr().String())
	crowd(near.Addr().String(), number(words, 0, 8), number(words, 1, 300))
	near.Close()
	far.Close()
}

// serve: an echo server for another program, until SIGTERM. Its address, if it is to have a certain one.
func serve(words []string) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	address := "127.0.0.1:0"
	if len(words) > 0 {
		address = words[0]
	}
	listener, err := net.Listen("tcp", address)
	must(err)
	go answer(listener)
	fmt.Println(listener.Addr())
	<-ended
	// The last connections end first.
	time.Sleep(200 * time.Millisecond)
}

// ask: the client of that. Address, connections, rounds.
func ask(words []string) {
	crowd(words[0], number(words, 1, 8), number(words, 2, 500))
}

// talk: the same until SIGTERM. Address, connections.
func talk(words []string) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		over.Store(true)
	}()
	crowd(words[0], number(words, 1, 4), 1<<30)
}

// share: a goroutine that asks without end, and is answered at once, lets another run that shares its
// processor with it. Address, rounds.
func shares(words []string) {
	runtime.GOMAXPROCS(1)
	var turns atomic.Int64
	go func() {
		for {
			time.Sleep(50 * time.Microsecond)
			turns.Add(1)
		}
	}()
	count := number(words, 1, 100000)
	connection, err := net.Dial("tcp", words[0])
	must(err)
	text := []byte("0123456789")
	for i := 0; i < count; i++ {
		_, err = connection.Write(text)
		must(err)
		_, err = io.ReadFull(connection, text)
		must(err)
	}
	fmt.Println(turns.Load(), "turns beside", count, "rounds")
	check(turns.Load() > int64(count/400), "the other goroutine had its turn", turns.Load())
}

// many: connections that come and go while others stay.
func many(words []string) {
	listener := listen()
	go answer(listener)
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func(seed int) {
			defer all.Done()
			for turn := 0; turn < 60; turn++ {
				rounds(listener.Addr().String(), 30, int64(seed*100+turn))
			}
		}(i)
	}
	rounds(listener.Addr().String(), 3000, 77)
	all.Wait()
}

func body(size int) []byte {
	bytes := make([]byte, size)
	rand.New(rand.NewSource(int64(size))).Read(bytes)
	return bytes
}

// site answers with a body of the size that is asked for, and the sum of what came.
func site() *http.Server {
	return &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		must(err)
		w.Header().Set("Sum", fmt.Sprintf("%x", sha256.Sum256(got)))
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		w.Write(body(size))
	})}
}

// visit sends and asks for bodies of many sizes, compares all, and keeps connections alive. The
// site's address, requests of each of eight visitors.
func visit(words []string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	var all sync.WaitGroup
	for worker := 0; worker < 8; worker++ {
		all.Add(1)
		go func(worker int) {
			defer all.Done()
			for i := 0; i < number(words, 1, 60); i++ {
				size, up := (i*7919+worker*131)%70000, (i*104729+worker)%50000
				sent := body(up)
				url := fmt.Sprintf("http://%s/?size=%d", words[0], size)
				response, err := client.Post(url, "application/octet-stream", bytes.NewReader(sent))
				must(err)
				got, err := io.ReadAll(response.Body)
				must(err)
				response.Body.Close()
				check(bytes.Equal(got, body(size)), "another body", size, len(got))
				check(response.Header.Get("Sum") == fmt.Sprintf("%x", sha256.Sum256(sent)), "another request")
			}
		}(worker)
	}
	all.Wait()
	client.CloseIdleConnections()
}

// web: net/http on both ends.
func web([]string) {
	listener, server := listen(), site()
	go server.Serve(listener)
	visit([]string{listener.Addr().String()})
	context, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	must(server.Shutdown(context))
}

// host: a site for other programs, until SIGTERM.
func host([]string) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	listener := listen()
	go site().Serve(listener)
	fmt.Println(listener.Addr())
	<-ended
}

// executes: this very program as child and grandchild, and others, beside traffic.
func executes(words []string) {
	if len(words) > 0 {
		if words[0] == "grandchild" {
			fmt.Println("grandchild", os.Getpid() != 0)
			return
		}
		out, err := exec.Command(os.Args[0], "exec", "grandchild").CombinedOutput()
		must(err)
		os.Stdout.Write(out)
		return
	}
	listener := listen()
	go answer(listener)
	done := make(chan bool)
	go func() { rounds(listener.Addr().String(), 5000, 5); done <- true }()
	var all sync.WaitGroup
	for worker := 0; worker < 3; worker++ {
		all.Add(1)
		go func(worker int) {
			defer all.Done()
			for i := 0; i < 25; i++ {
				out, err := exec.Command("sh", "-c", "cat; exit 3").CombinedOutput()
				var status *exec.ExitError
				check(errors.As(err, &status) && status.ExitCode() == 3, "status of sh", err, string(out))
				out, err = exec.Command("/no/such/program").CombinedOutput()
				check(errors.Is(err, os.ErrNotExist), "no such program", err, string(out))
			}
		}(worker)
	}
	all.Wait()
	for i := 0; i < 4; i++ {
		out, err := exec.Command(os.Args[0], "exec", "child").CombinedOutput()
		must(err)
		check(strings.Contains(string(out), "grandchild true"), "the grandchild said", string(out))
	}
	<-done
}

// descend: a child's child speaks over connections. How many there are before it.
func descend(words []string) {
	count := number(words, 0, 2)
	if count == 0 {
		echo([]string{"4", "400"})
		return
	}
	out, err := exec.Command(os.Args[0], "descend", strconv.Itoa(count-1)).CombinedOutput()
	check(err == nil && string(out) == "OK\n", "the child said", string(out), err)
}

// namespaces: children in namespaces of their own, which share this memory until they execute, or do not
// (a user namespace), beside traffic. Needs root.
func namespaces([]string) {
	listener := listen()
	go answer(listener)
	done := make(chan bool)
	go func() { rounds(listener.Addr().String(), 5000, 5); done <- true }()
	for i := 0; i < 20; i++ {
		for _, flags := range []uintptr{syscall.CLONE_NEWUTS, syscall.CLONE_NEWUSER | syscall.CLONE_NEWUTS} {
			child := exec.Command(os.Args[0], "whoami", fmt.Sprint(i))
			child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
			out, err := child.CombinedOutput()
			must(err)
			check(strings.HasSuffix(string(out), "OK\n"), "the child said", string(out))
		}
	}
	<-done
}

// traces: the runtime's own events are written, beside traffic.
func traces([]string) {
	var out bytes.Buffer
	must(trace.Start(&out))
	listener := listen()
	go answer(listener)
	crowd(listener.Addr().String(), 8, 600)
	trace.Stop()
	check(out.Len() > 10000, "the trace is empty", out.Len())
}

// signals: told to the program, beside traffic; a preemption is a signal too.
func signals([]string) {
	listener := listen()
	go answer(listener)
	told := make(chan os.Signal, 1000)
	signal.Notify(told, syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGWINCH)
	var stop atomic.Bool
	var all sync.WaitGroup
	all.Add(2)
	go func() {
		defer all.Done()
		for !stop.Load() {
			syscall.Kill(os.Getpid(), syscall.SIGURG)
			time.Sleep(50 * time.Microsecond)
		}
	}()
	go func() {
		defer all.Done()
		for !stop.Load() {
			for i := 0; i < 1000000; i++ {
			}
			runtime.Gosched()
		}
	}()
	sent := 0
	for _, number := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGWINCH} {
		for i := 0; i < 20; i++ {
			must(syscall.Kill(os.Getpid(), number))
			got := <-told
			check(got == number, "another signal", got)
			sent++
		}
		crowd(listener.Addr().String(), 4, 300)
	}
	stop.Store(true)
	all.Wait()
	signal.Reset(syscall.SIGUSR1)
	signal.Ignore(syscall.SIGHUP)
	must(syscall.Kill(os.Getpid(), syscall.SIGHUP))
	check(sent == 60)
}

// collect: the collector at work all the time, stacks that grow and shrink, beside traffic.
func collect([]string) {
	debug.SetGCPercent(10)
	listener := listen()
	go answer(listener)
	var stop atomic.Bool
	go func() {
		var keep [][]byte
		for !stop.Load() {
			keep = append(keep, make([]byte, 1+rand.Intn(5000)))
			if len(keep) > 500 {
				keep = keep[400:]
			}
			deep(rand.Intn(400))
			time.Sleep(20 * time.Microsecond)
		}
	}()
	crowd(listener.Addr().String(), 8, 600)
	runtime.GC()
	stop.Store(true)
}

func deep(depth int) int {
	var room [200]byte
	room[depth%200] = byte(depth)
	if depth == 0 {
		return int(room[0])
	}
	return deep(depth-1) + int(room[depth%200])
}

// threads: each goroutine takes a thread with it when it ends.
func threads(words []string) {
	listener := listen()
	go answer(listener)
	for round := 0; round < number(words, 0, 20); round++ {
		var all sync.WaitGroup
		for i := 0; i < 30; i++ {
			all.Add(1)
			go func(i int) {
				defer all.Done()
				runtime.LockOSThread()
				rounds(listener.Addr().String(), 20, int64(i))
			}(i)
		}
		all.Wait()
	}
}

// fault: a nil pointer is told as a panic, again and again.
func fault([]string) {
	listener := listen()
	go answer(listener)
	for i := 0; i < 200; i++ {
		func() {
			defer func() {
				err, is := recover().(runtime.Error)
				check(is && strings.Contains(err.Error(), "nil pointer"), "recovered", err)
			}()
			var nothing *[100]int
			nothing[i%100]++
		}()
		if i%50 == 0 {
			rounds(listener.Addr().String(), 100, 3)
		}
	}
}

// deadlines: reads that time out, and are ended by a close.
func deadlines([]string) {
	listener := listen()
	go answer(listener)
	connection, err := net.Dial("tcp", listener.Addr().String())
	must(err)
	buffer := make([]byte, 10)
	for i := 0; i < 2000; i++ {
		_, err = connection.Write([]byte("0123456789"))
		must(err)
		_, err = io.ReadFull(connection, buffer)
		must(err)
	}
	for i := 0; i < 10; i++ {
		begin := time.Now()
		connection.SetReadDeadline(begin.Add(20 * time.Millisecond))
		_, err = connection.Read(buffer)
		check(errors.Is(err, os.ErrDeadlineExceeded), "deadline", err)
		check(time.Since(begin) >= 20*time.Millisecond, "too early")
	}
	connection.SetReadDeadline(time.Time{})
	go func() { time.Sleep(20 * time.Millisecond); connection.Close() }()
	_, err = connection.Read(buffer)
	check(errors.Is(err, net.ErrClosed), "close", err)
	// Nobody listens there.
	listener.Close()
	_, err = net.DialTimeout("tcp", listener.Addr().String(), time.Second)
	check(errors.Is(err, syscall.ECONNREFUSED), "refused", err)
}

// own: what the program learns of its own file.
func own(words []string) {
	name, err := os.Executable()
	must(err)
	want, err := filepath.EvalSymlinks(words[0])
	must(err)
	want, err = filepath.Abs(want)
	must(err)
	check(name == want, "os.Executable", name, want)
	through, err := os.ReadFile("/proc/self/exe")
	must(err)
	direct, err := os.ReadFile(words[0])
	must(err)
	check(bytes.Equal(through, direct), "/proc/self/exe is another file")
	info, err := os.Stat("/proc/self/exe")
	must(err)
	check(info.Size() == int64(len(direct)), "its size")
	if len(words) < 2 {
		out, err := exec.Command("/proc/self/exe", "own", words[0], "again").CombinedOutput()
		must(err)
		check(strings.TrimSpace(string(out)) == "OK", "itself again said", string(out))
	}
	comm, err := os.ReadFile("/proc/self/comm")
	must(err)
	base := filepath.Base(want)
	if len(base) > 15 {
		base = base[:15]
	}
	check(strings.TrimSpace(string(comm)) == base || len(words) > 1, "comm", string(comm))
	line, err := os.ReadFile("/proc/self/cmdline")
	must(err)
	check(string(line) == strings.Join(os.Args, "\x00")+"\x00", "cmdline", string(line))
	for _, entry := range os.Environ() {
		check(!strings.HasPrefix(entry, "GINNEL_GO_PROGRAM"), "environment", entry)
	}
}

func whoami([]string) { fmt.Println(os.Args, syscall.Getuid()) }

// exits: bytes that were just written are the other end's, also when the process ends at once.
func exits(words []string) {
	connection, err := net.Dial("tcp", words[0])
	must(err)
	buffer := make([]byte, 5)
	for i := 0; i < 100; i++ {
		_, err = connection.Write([]byte("hello"))
		must(err)
		_, err = io.ReadFull(connection, buffer)
		must(err)
	}
	connection.Write([]byte("the last words"))
	fmt.Println("OK")
	os.Exit(7)
}

// attend: the server for that: says the last words that it hears.
func attend([]string) {
	listener := listen()
	fmt.Println(listener.Addr())
	connection, err := listener.Accept()
	must(err)
	reader, last := bufio.NewReader(connection), ""
	for {
		buffer := make([]byte, 100)
		n, err := reader.Read(buffer)
		if n > 0 {
			last = string(buffer[:n])
			if last == "hello" {
				connection.Write(buffer[:n])
			}
		}
		if err != nil {
			fmt.Println(last, "/", err)
			return
		}
	}
}

// crash: as the runtime ends a program, with all goroutines told.
func crash([]string) {
	listener := listen()
	go answer(listener)
	rounds(listener.Addr().String(), 200, 1)
	debug.SetTraceback("all")
	go func() { select {} }()
	time.Sleep(50 * time.Millisecond)
	var nothing *int
	*nothing = 1
}

// profile: SIGPROF a hundred times a second, and a profile at the end.
func profile([]string) {
	var out bytes.Buffer
	must(pprof.StartCPUProfile(&out))
	listener := listen()
	go answer(listener)
	end := time.Now().Add(1500 * time.Millisecond)
	for time.Now().Before(end) {
		crowd(listener.Addr().String(), 4, 200)
	}
	pprof.StopCPUProfile()
	check(out.Len() > 200, "the profile is empty", out.Len())
}

// lock: all memory is locked, as who has secrets does it: that takes no more than the program has. Needs root.
func lock([]string) {
	listener := listen()
	go answer(listener)
	crowd(listener.Addr().String(), 4, 300)
	must(syscall.Mlockall(syscall.MCL_CURRENT | syscall.MCL_FUTURE))
	status, err := os.ReadFile("/proc/self/status")
	must(err)
	shared := -1
	for _, line := range strings.Split(string(status), "\n") {
		fmt.Sscanf(line, "RssShmem: %d kB", &shared)
	}
	check(shared >= 0 && shared < 100<<10, "shared memory, KiB", shared)
	crowd(listener.Addr().String(), 4, 300)
}

// user: gives up root in every thread, beside traffic.
func user([]string) {
	listener := listen()
	go answer(listener)
	done := make(chan bool)
	go func() { rounds(listener.Addr().String(), 3000, 5); done <- true }()
	time.Sleep(30 * time.Millisecond)
	must(syscall.Setgroups(nil))
	must(syscall.Setgid(65534))
	must(syscall.Setuid(65534))
	<-done
	rounds(listener.Addr().String(), 200, 6)
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	must(err)
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(status), "\n") {
			if strings.HasPrefix(line, "Uid:") || strings.HasPrefix(line, "Gid:") {
				check(strings.Join(strings.Fields(line)[1:], " ") == "65534 65534 65534 65534", "a thread kept", line)
			}
		}
	}
}

// inherit: a connection that was used is a child's from then on.
func inherit(words []string) {
	connection, err := net.Dial("tcp", words[0])
	must(err)
	buffer := make([]byte, 5)
	for i := 0; i < 100; i++ {
		_, err = connection.Write([]byte("hello"))
		must(err)
		_, err = io.ReadFull(connection, buffer)
		must(err)
	}
	file, err := connection.(*net.TCPConn).File()
	must(err)
	child := exec.Command(os.Args[0], "inherited")
	if len(words) > 1 {
		child = exec.Command(words[1], words[2:]...)
	}
	child.ExtraFiles = []*os.File{file}
	connection.Close()
	out, err := child.CombinedOutput()
	must(err)
	check(strings.Contains(string(out), "OK"), "the child said", string(out))
}

// replace: becomes itself, or another that is named, with a connection that was used. Address, program.
func replace(words []string) {
	connection, err := net.Dial("tcp", words[0])
	must(err)
	buffer := make([]byte, 5)
	for i := 0; i < 100; i++ {
		_, err = connection.Write([]byte("hello"))
		must(err)
		_, err = io.ReadFull(connection, buffer)
		must(err)
	}
	raw, err := connection.(*net.TCPConn).SyscallConn()
	must(err)
	raw.Control(func(descriptor uintptr) {
		if descriptor != 3 {
			must(syscall.Dup3(int(descriptor), 3, 0))
		} else {
			_, _, failed := syscall.Syscall(syscall.SYS_FCNTL, descriptor, syscall.F_SETFD, 0)
			check(failed == 0, "F_SETFD", failed)
		}
		next := os.Args[0]
		if len(words) > 1 {
			next = words[1]
		}
		must(syscall.Exec(next, []string{next, "inherited"}, os.Environ()))
	})
}

// inherited: that child.
func inherited([]string) {
	connection, err := net.FileConn(os.NewFile(3, "inherited"))
	must(err)
	buffer := make([]byte, 5)
	for i := 0; i < 100; i++ {
		_, err = connection.Write([]byte("again"))
		must(err)
		_, err = io.ReadFull(connection, buffer)
		must(err)
		check(string(buffer) == "again", "other bytes", string(buffer))
	}
}

// redis: a client of a server in C. Address.
func redis(words []string) {
	var all sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		all.Add(1)
		go func(worker int) {
			defer all.Done()
			connection, err := net.Dial("tcp", words[0])
			must(err)
			defer connection.Close()
			reader := bufio.NewReader(connection)
			line := func() string {
				text, err := reader.ReadString('\n')
				must(err)
				return strings.TrimRight(text, "\r\n")
			}
			for i := 0; i < 400; i++ {
				value := strings.Repeat(strconv.Itoa(i), 1+i%40)
				key := fmt.Sprintf("%d:%d", worker, i%7)
				fmt.Fprintf(connection, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
				check(line() == "+OK", "SET")
				fmt.Fprintf(connection, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
				check(line() == fmt.Sprintf("$%d", len(value)), "length")
				check(line() == value, "GET")
			}
		}(worker)
	}
	all.Wait()
}

// reads is how often the process has asked the kernel to read something.
func reads() int {
	text, err := os.ReadFile("/proc/self/io")
	must(err)
	_, text, _ = bytes.Cut(text, []byte("syscr: "))
	count, _, _ := bytes.Cut(text, []byte("\n"))
	return number([]string{string(count)}, 0, 0)
}

// files opens one a thousand times: Go adds each to its epoll set, and hears that it cannot be waited for.
func files([]string) {
	before := reads()
	for i := 0; i < 1000; i++ {
		file, err := os.Open(os.Args[0])
		must(err)
		must(file.Close())
	}
	more := reads() - before
	check(more < 200, more, "reads while a thousand files were opened")
}

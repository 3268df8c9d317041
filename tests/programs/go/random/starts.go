package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// starts: this program is started again in all the ways in which a program can be, and says each time what it
// is and that its connections work.
func starts(s *scene) {
	// Some of what is started ends with the thread that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	above, err := os.MkdirTemp("", "random")
	must(err)
	defer os.RemoveAll(above)
	must(os.Chmod(above, 0o755))
	place := filepath.Join(above, "place")
	for _, folder := range []string{place, filepath.Join(place, "tmp")} {
		must(os.Mkdir(folder, 0o755))
		must(os.Chmod(folder, 0o777))
	}
	program := filepath.Join(place, "a copy\nof it")
	own, err := os.ReadFile("/proc/self/exe")
	must(err)
	// Who has a file open to write to it, as a child has that is about to be another program, keeps others from
	// executing it.
	alone(func() { must(os.WriteFile(program, own, 0o755)) })
	for rounds := 2 + s.Intn(4); rounds > 0; rounds-- {
		how := s.Intn(len(ways))
		command := ways[how](s, place, program)
		command.Env = append(command.Env, "RANDOM_HELPER=self", fmt.Sprint("RANDOM_SEED=", s.Int63()))
		out, err := command.CombinedOutput()
		s.say("way %d: %s%s", how, out, word(err))
	}
}

// shell has a shell do this before it becomes the program "$0".
func shell(line, program string) *exec.Cmd {
	command := exec.Command("/bin/sh", "-c", line+` exec "$0"`, program)
	command.Env = os.Environ()
	return command
}

func simply(path string) *exec.Cmd {
	return &exec.Cmd{Path: path, Args: []string{path}, Env: os.Environ()}
}

func with(command *exec.Cmd, attributes syscall.SysProcAttr) *exec.Cmd {
	command.SysProcAttr = &attributes
	return command
}

var ways = []func(s *scene, place, program string) *exec.Cmd{
	func(_ *scene, _, program string) *exec.Cmd { return simply(program) },
	func(_ *scene, place, program string) *exec.Cmd {
		other := filepath.Join(place, "linked")
		os.Remove(other)
		must(os.Link(program, other))
		return simply(other)
	},
	func(_ *scene, place, program string) *exec.Cmd {
		other := filepath.Join(place, "pointed at")
		os.Remove(other)
		must(os.Symlink(program, other))
		return simply(other)
	},
	func(_ *scene, place, program string) *exec.Cmd {
		command := simply("./" + filepath.Base(program))
		command.Dir = place
		return command
	},
	// By nothing but its name.
	func(_ *scene, place, program string) *exec.Cmd {
		command := shell(`PATH="$1"; export PATH;`, filepath.Base(program))
		command.Args = append(command.Args, place)
		return command
	},
	func(_ *scene, _, program string) *exec.Cmd {
		return &exec.Cmd{Path: program, Args: []string{""}, Env: os.Environ()}
	},
	// By a descriptor, of a file that has no name.
	func(_ *scene, _, program string) *exec.Cmd {
		command := simply("/proc/self/fd/3")
		command.ExtraFiles = []*os.File{nameless(program)}
		return command
	},
	func(_ *scene, _, program string) *exec.Cmd {
		command := simply("/dev/fd/3")
		command.ExtraFiles = []*os.File{nameless(program)}
		return command
	},
	func(_ *scene, _, program string) *exec.Cmd {
		command := exec.Command(os.Args[0], "empty")
		command.Env = os.Environ()
		command.ExtraFiles = []*os.File{nameless(program)}
		return command
	},
	// Nowhere.
	func(_ *scene, place, program string) *exec.Cmd {
		return shell(`mkdir "$0.d" && cd "$0.d" && rmdir "$0.d" &&`, program)
	},
	// With nothing, and with much.
	func(_ *scene, _, program string) *exec.Cmd {
		return &exec.Cmd{Path: program, Args: []string{program}, Env: []string{"A=B"}}
	},
	func(s *scene, _, program string) *exec.Cmd {
		command := simply(program)
		for i := 0; i < 15+s.Intn(3); i++ {
			command.Env = append(command.Env, fmt.Sprintf("MUCH%d=%s", i, strings.Repeat("x", 100_000)))
		}
		return command
	},
	func(s *scene, _, program string) *exec.Cmd {
		command := simply(program)
		for i := 0; i < 30000; i++ {
			command.Args = append(command.Args, fmt.Sprint(i))
		}
		return command
	},
	// With less than most have.
	func(s *scene, _, program string) *exec.Cmd {
		limits := []string{"ulimit -n 40;", "ulimit -n 300;", "ulimit -s 128;", "ulimit -s 200;", "ulimit -s unlimited;",
			"ulimit -v 3000000;", "ulimit -d 200000;", "ulimit -c 0;", "ulimit -l 0;"}
		return shell(limits[s.Intn(len(limits))], program)
	},
	func(_ *scene, _, program string) *exec.Cmd { return shell("exec <&-;", program) },
	func(_ *scene, _, program string) *exec.Cmd { return shell("exec <&- 2>&-;", program) },
	// As somebody or something else.
	func(_ *scene, _, program string) *exec.Cmd {
		return with(simply(program), syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL})
	},
	func(_ *scene, _, program string) *exec.Cmd {
		return with(simply(program), syscall.SysProcAttr{Setsid: true})
	},
	func(_ *scene, _, program string) *exec.Cmd {
		nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
		return with(simply(program), syscall.SysProcAttr{Credential: nobody})
	},
	func(_ *scene, place, program string) *exec.Cmd {
		return with(simply("/"+filepath.Base(program)), syscall.SysProcAttr{Chroot: place})
	},
	func(_ *scene, _, program string) *exec.Cmd {
		return with(simply(program), syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}})
	},
	func(_ *scene, _, program string) *exec.Cmd {
		return with(simply(program), syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			Unshareflags: syscall.CLONE_NEWUTS})
	},
}

// nameless is a program's contents in memory.
func nameless(program string) *os.File {
	const create = 319
	name := []byte("nameless\x00")
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, _, failed := syscall.Syscall(create, uintptr(unsafe.Pointer(&name[0])), 1, 0)
	if failed != 0 {
		panic(failed)
	}
	file := os.NewFile(fd, "nameless")
	all, err := os.ReadFile(program)
	must(err)
	_, err = file.Write(all)
	must(err)
	reopened, err := os.Open(fmt.Sprintf("/proc/thread-self/fd/%d", fd))
	must(err)
	file.Close()
	return reopened
}

// empty: becomes the program behind descriptor 3, which it names by nothing else.
func empty([]string) {
	const execveat, emptyPath = 322, 0x1000
	argv, err := syscall.SlicePtrFromStrings([]string{"by number"})
	must(err)
	envp, err := syscall.SlicePtrFromStrings(os.Environ())
	must(err)
	_, _, failed := syscall.RawSyscall6(execveat, 3, uintptr(unsafe.Pointer(&[]byte{0}[0])), uintptr(unsafe.Pointer(&argv[0])),
		uintptr(unsafe.Pointer(&envp[0])), emptyPath, 0)
	panic(failed)
}

// self says what this process is.
func self([]string) {
	s := &scene{name: "self"}
	var seed int64
	fmt.Sscan(os.Getenv("RANDOM_SEED"), &seed)
	s.Rand = s0(seed)
	os.Unsetenv("RANDOM_HELPER")
	base := func(path string, err error) string { return fmt.Sprintf("%q %s", filepath.Base(path), inner(err)) }
	s.say("%d words, the first of them %q; its file: %s", len(os.Args), filepath.Base(os.Args[0]), base(os.Executable()))
	info, err := os.Stat("/proc/self/exe")
	if err == nil {
		file, failed := os.Open("/proc/self/exe")
		must(failed)
		all, failed := io.ReadAll(file)
		must(failed)
		file.Close()
		s.say("%d bytes, %d", info.Size(), len(all))
	}
	s.say("exe: %s; place: %s", inner(err), base(os.Getwd()))
	comm, err := os.ReadFile("/proc/self/comm")
	s.say("called %q %s", comm, inner(err))
	s.say("user %d, group %d, first of its group: %v", os.Getuid(), os.Getgid(), syscall.Getpgrp() == os.Getpid())
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "GINNEL_GO_PROGRAM") {
			s.say("%s", entry)
		}
	}
	a, b := pair(s)
	for i := 0; i < 3; i++ {
		transfer(s, a, b, 1+s.Intn(50_000))
		transfer(s, b, a, 1+s.Intn(50_000))
	}
	a.Close()
	b.Close()
	s.say("%d sockets are left", count("socket:"))
	if out, err := exec.Command("/proc/self/exe", "say", "again").CombinedOutput(); err == nil {
		s.say("%s", out)
	} else {
		s.say("not again: %s", inner(err))
	}
	os.Stdout.Write(s.said.Bytes())
}

// inner is what the kernel said.
func inner(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		return fmt.Sprintf("error %d", int(number))
	}
	return word(err)
}

// storms: many threads start programs at once, beside traffic.
func storms(s *scene) {
	listener := listen()
	go echoes(listener)
	c, err := net.Dial("tcp4", listener.Addr().String())
	must(err)
	said := make([]string, 2+s.Intn(10))
	var all sync.WaitGroup
	for i := range said {
		all.Add(1)
		locked, times := s.Intn(2) == 0, 1+s.Intn(5)
		go func(i int) {
			defer all.Done()
			if locked {
				runtime.LockOSThread()
			}
			for ; times > 0; times-- {
				said[i] += forked(i)
			}
		}(i)
	}
	s.say("beside them: %s", asked(s, c.(*net.TCPConn), 200))
	all.Wait()
	for _, one := range said {
		s.say("%s", one)
	}
	c.Close()
	listener.Close()
}

// forked is what a child says that is started without package os.
func forked(number int) string {
	var pipe [2]int
	must(syscall.Pipe2(pipe[:], syscall.O_CLOEXEC))
	program, err := os.Executable()
	must(err)
	pid, err := syscall.ForkExec(program, []string{"x", "say", fmt.Sprint(number, ";")},
		&syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, uintptr(pipe[1]), 2}})
	must(err)
	syscall.Close(pipe[1])
	file := os.NewFile(uintptr(pipe[0]), "pipe")
	out, err := io.ReadAll(file)
	must(err)
	file.Close()
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	must(err)
	return fmt.Sprintf("%s%d ", out, status)
}

// becomes: a process executes itself, out of some thread, and goes on with its connection.
func becomes(s *scene) {
	listener := listen()
	go echoes(listener)
	command := exec.Command(os.Args[0], "turn", listener.Addr().String(), fmt.Sprint(s.Int63()), fmt.Sprint(1+s.Intn(3)))
	out, err := command.CombinedOutput()
	s.say("%s%s", out, word(err))
	listener.Close()
}

// turn: that process. The number of its connection is its last word, from the second time on.
func turn(words []string) {
	var seed, times int64
	fmt.Sscan(words[1], &seed)
	fmt.Sscan(words[2], &times)
	s := &scene{Rand: s0(seed), name: "turn"}
	var c *net.TCPConn
	if len(words) > 3 {
		var number uintptr
		fmt.Sscan(words[3], &number)
		file := os.NewFile(number, "kept")
		other, err := net.FileConn(file)
		must(err)
		file.Close()
		c = other.(*net.TCPConn)
	} else {
		other, err := net.Dial("tcp4", words[0])
		must(err)
		c = other.(*net.TCPConn)
	}
	s.say("%s", asked(s, c, 1+s.Intn(40)))
	os.Stdout.Write(s.said.Bytes())
	if times == 0 {
		c.CloseWrite()
		reads(s, "the end", c)
		return
	}
	file, err := c.File()
	must(err)
	number := file.Fd()
	_, _, failed := syscall.Syscall(syscall.SYS_FCNTL, number, syscall.F_SETFD, 0)
	if failed != 0 {
		panic(failed)
	}
	must(syscall.SetNonblock(int(number), true))
	c.Close()
	go func() {
		runtime.LockOSThread()
		time.Sleep(time.Duration(s.Intn(2000)) * time.Microsecond)
		panic(syscall.Exec("/proc/self/exe", []string{os.Args[0], "turn", words[0], fmt.Sprint(s.Int63()), fmt.Sprint(times - 1),
			fmt.Sprint(number)}, os.Environ()))
	}()
	select {}
}

// broken: nobody reads what is written to standard output, be it a pipe or a connection: that ends a program.
func broken(s *scene) {
	for rounds := 1 + s.Intn(4); rounds > 0; rounds-- {
		command := exec.Command(os.Args[0], "pour")
		if s.Intn(2) == 0 {
			reader, writer, err := os.Pipe()
			must(err)
			command.Stdout = writer
			must(command.Start())
			writer.Close()
			_, err = io.CopyN(io.Discard, reader, int64(1+s.Intn(300_000)))
			s.say("a pipe: %s", word(err))
			reader.Close()
		} else {
			a, b := pair(s)
			file, err := b.File()
			must(err)
			command.Stdout = file
			must(command.Start())
			file.Close()
			b.Close()
			got := make([]byte, 1+s.Intn(300_000))
			_, err = io.ReadFull(a, got)
			s.say("a connection: %s, as it was: %v", word(err), poured(got))
			a.SetLinger(0)
			a.Close()
		}
		s.say("it ends: %v", command.Wait())
	}
	s.say("%s", panics(s))
}

// pour: writes to standard output until that ends it.
func pour([]string) {
	for i := 0; ; i++ {
		fmt.Printf("%08d\n", i)
	}
}

func poured(got []byte) bool {
	for at := range got {
		if got[at] != fmt.Sprintf("%08d\n", at/9)[at%9] {
			return false
		}
	}
	return true
}

// panics: what the runtime itself writes, past package os, reaches who holds the other end of a connection that is
// standard error, behind what was written before.
func panics(s *scene) string {
	a, b := pair(s)
	file, err := b.File()
	must(err)
	command := exec.Command(os.Args[0], "panic")
	command.Stderr = file
	must(command.Start())
	file.Close()
	b.Close()
	got, err := io.ReadAll(a)
	a.Close()
	lines := strings.Split(string(got), "\n")
	return fmt.Sprintf("%d of %d lines, %s %v", strings.Count(string(got), "before"), len(lines)-strings.Count(string(got), "\t"), word(err), command.Wait())
}

func panicking([]string) {
	for i := 0; i < 200; i++ {
		fmt.Fprintln(os.Stderr, "before", i)
		println("before", i)
	}
	panic("it ends")
}

package main

// A broker for each group, as a child process. A pod is given its group's socket and no other, so
// no broker ever sees ends of two groups: what keeps them apart is a mount, not a rule.

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
	// idle is for how long a broker stays after its last container: pods that are restarted find it.
	idle = 10 * time.Minute
	// fresh is for how long it stays at least, however much its place is wanted: its container may be
	// about to be made.
	fresh = time.Minute
	// reserve: a namespace or realm that has groups gets one more only while that many times its own
	// are free. One that has none gets one while any is.
	reserve = 3
	// head begins a broker's configuration; the group's name follows.
	head = "# The group "
)

var errTooMany = errors.New("the node has as many groups as it may, or the namespace as many as it may there")

// brokers of this node's groups.
type brokers struct {
	program string
	// root is the host's directory in which each group has one. It stays for as long as a container
	// has it mounted: a new broker makes its socket there.
	root string
	// settings are lines of the brokers' configuration.
	settings string
	most     int
	meters   *meters

	mutex   sync.Mutex
	running map[string]*broker
}

type broker struct {
	stop  context.CancelFunc
	used  time.Time
	scope string
}

func newBrokers(program, root, settings string, most int, meters *meters) *brokers {
	return &brokers{program: program, root: root, settings: settings, most: most, meters: meters, running: map[string]*broker{}}
}

// directory returns what containers of the group are given.
func (b *brokers) directory(id string) string { return filepath.Join(b.root, id, "broker") }

// idOf is the inverse; "" where it is none of them.
func (b *brokers) idOf(directory string) string {
	id := filepath.Base(filepath.Dir(directory))
	if !isID(id) || b.directory(id) != filepath.Clean(directory) {
		return ""
	}
	return id
}

// want has a broker running for a group, and returns the directory. It waits for nobody.
func (b *brokers) want(group group) (string, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if _, there := b.running[group.id()]; !there && !b.hasRoom(group.scope) {
		return "", errTooMany
	}
	return b.start(group.id(), group.String(), group.scope)
}

// resume has a broker running for the group of a container that an earlier agent gave one.
func (b *brokers) resume(id string) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if _, there := b.running[id]; !there && len(b.running) >= b.most {
		return errTooMany
	}
	name, scope := b.nameOf(id)
	_, err := b.start(id, name, scope)
	return err
}

// hasRoom holds if a namespace or realm may have one more group here. Whoever may make pods in one
// namespace can name groups without end, and is not to use up those of all.
func (b *brokers) hasRoom(scope string) bool {
	own := 0
	for _, known := range b.running {
		if known.scope == scope {
			own++
		}
	}
	return b.most-len(b.running) > reserve*own
}

func (b *brokers) start(id, name, scope string) (string, error) {
	directory := b.directory(id)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", err
	}
	if known, there := b.running[id]; there {
		known.used = time.Now()
		return directory, nil
	}
	text := fmt.Sprintf("%s%q\nrun_dir = %q\nstatus = \"off\"\n[broker]\n%s\n", head, name, filepath.Join(b.root, id), b.settings)
	if err := b.configure(id, text); err != nil {
		return "", err
	}
	ctx, stop := context.WithCancel(context.Background())
	b.running[id] = &broker{stop: stop, used: time.Now(), scope: scope}
	b.meters.groups.Set(float64(len(b.running)))
	go b.keep(ctx, b.configuration(id), name)
	return directory, nil
}

// configure leaves a broker's configuration. Where the disk is full, the one that an earlier agent left
// stays as it is, and does: a group whose containers run is not to lose its broker for that.
func (b *brokers) configure(id, text string) error {
	file := b.configuration(id)
	if before, err := os.ReadFile(file); err == nil && string(before) == text {
		return nil
	}
	err := replace(file, text)
	if _, scope := b.nameOf(id); err != nil && scope != "" {
		slog.Warn("a broker has an earlier agent's settings", "group", id, "why", err)
		return nil
	}
	return err
}

// replace writes a file whole, or leaves the one that is there.
func replace(file, text string) error {
	draft := file + ".draft"
	if err := os.WriteFile(draft, []byte(text), 0o644); err != nil {
		_ = os.Remove(draft)
		return err
	}
	return os.Rename(draft, file)
}

func (b *brokers) configuration(id string) string { return filepath.Join(b.root, id, "broker.toml") }

// nameOf returns a group's name and scope, as the agent noted them that first gave it a broker.
func (b *brokers) nameOf(id string) (name, scope string) {
	text, _ := os.ReadFile(b.configuration(id))
	first, _, _ := strings.Cut(string(text), "\n")
	name, err := strconv.Unquote(strings.TrimPrefix(first, head))
	scope, own, found := cutLast(name, "/")
	if err != nil || !found || (group{scope, own}).id() != id {
		return "of containers that run: " + id, ""
	}
	return name, scope
}

// cutLast cuts a text where the separator is last.
func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// stopUnused ends the brokers of groups that had no container for that long, and takes their
// directories away.
func (b *brokers) stopUnused(used map[string]bool, after time.Duration) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for id, known := range b.running {
		if used[id] {
			known.used = time.Now()
		} else if time.Since(known.used) > after {
			known.stop()
			delete(b.running, id)
			b.remove(id)
		}
	}
	b.meters.groups.Set(float64(len(b.running)))
}

// removeLeft takes away the directories that earlier agents left, of groups without a container.
func (b *brokers) removeLeft(used map[string]bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	entries, _ := os.ReadDir(b.root)
	for _, entry := range entries {
		id := entry.Name()
		_, runs := b.running[id]
		about, err := entry.Info()
		if runs || used[id] || !isID(id) || err != nil || time.Since(about.ModTime()) < idle {
			continue
		}
		b.remove(id)
	}
}

func (b *brokers) remove(id string) {
	if err := os.RemoveAll(filepath.Join(b.root, id)); err != nil {
		slog.Warn("a group's directory stays", "group", id, "why", err)
	}
}

// isID holds for what [group.id] makes.
func isID(name string) bool {
	bytes, err := hex.DecodeString(name)
	return err == nil && len(bytes) == idSize
}

// keep has one running until the context ends.
func (b *brokers) keep(ctx context.Context, configuration, name string) {
	// The child is to end with this process; the kernel takes the thread that started it for that.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		b.meters.brokers.Inc()
		err := b.run(ctx, configuration, name)
		b.meters.brokers.Dec()
		if ctx.Err() != nil {
			return
		}
		b.meters.restarts.Inc()
		pause = nextPause(pause, time.Since(began))
		slog.Warn("a broker ended", "group", name, "why", err, "again in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (b *brokers) run(ctx context.Context, configuration, name string) error {
	command := exec.CommandContext(ctx, b.program, "--config", configuration)
	command.Env = []string{}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	lines, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	b.listen(lines, name)
	return command.Wait()
}

// listen passes a broker's log on, and counts what it says.
func (b *brokers) listen(lines io.Reader, name string) {
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		line := scanner.Text()
		if strings.Contains(line, "event=paired") {
			b.meters.pairs.Inc()
			continue
		}
		slog.Info("broker", "group", name, "line", line)
	}
	// A line without an end must not stop the broker, which writes on.
	_, _ = io.Copy(io.Discard, lines)
}

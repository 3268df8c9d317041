package main

// What may go wrong on a node: its disk is full, or other plugins want what this one wants.

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

const smallDisk = "GINNEL_TEST_SMALL_DISK"

// onSmallDisk runs the test that calls it once more, as a process of its own whose temporary directory
// is a file system of 128 KiB. It holds there, and there alone.
func onSmallDisk(t *testing.T) bool {
	if os.Getenv(smallDisk) != "" {
		if err := syscall.Mount("tmpfs", os.TempDir(), "tmpfs", 0, "size=128k"); err != nil {
			t.Fatal(err)
		}
		return true
	}
	again := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
	again.Env = append(os.Environ(), smallDisk+"=1", "TMPDIR="+t.TempDir())
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	text, err := again.CombinedOutput()
	t.Logf("%s", text)
	if err != nil || !strings.Contains(string(text), "--- PASS: "+t.Name()) {
		t.Error(err)
	}
	return false
}

// fill leaves no room on the disk until the test calls what it returns.
func fill(t *testing.T) (empty func()) {
	ballast := filepath.Join(os.TempDir(), "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	return func() {
		if err := os.Remove(ballast); err != nil {
			t.Error(err)
		}
	}
}

// next is the agent that comes after another one on the same node.
func next(t *testing.T, before *plugin, settings string) *plugin {
	brokers := newBrokers(before.brokers.program, before.brokers.root, settings, 8, before.meters)
	t.Cleanup(func() {
		for _, known := range brokers.running {
			known.stop()
		}
	})
	return &plugin{libraries: before.libraries, brokers: brokers, namespaces: none{}, handlers: runtimes, meters: before.meters}
}

func running(id string, given *api.ContainerAdjustment) *api.Container {
	return &api.Container{Id: id, State: api.ContainerState_CONTAINER_RUNNING, Mounts: given.GetMounts()}
}

func TestAnAgentThatComesToAFullDiskHasBrokersForWhatRuns(t *testing.T) {
	if !onSmallDisk(t) {
		return
	}
	first := newPlugin(t, 8)
	container := running("1", create(t, first, "a", "1"))
	id := (group{"namespace/shop", "a"}).id()
	for settings, other := range map[string]string{"": "b", "pairs = 7": "c"} {
		empty := fill(t)
		second := next(t, first, settings)
		synchronize(t, second, container)
		if len(second.brokers.running) != 1 {
			t.Errorf("settings %q: its group has no broker", settings)
		}
		if name, scope := second.brokers.nameOf(id); scope != "namespace/shop" {
			t.Errorf("settings %q: whose the group is is lost: %q", settings, name)
		}
		if create(t, second, other, "2") != nil {
			t.Errorf("settings %q: a container was given a broker that cannot be", settings)
		}
		empty()
		if create(t, second, other, "2") == nil {
			t.Errorf("settings %q: there is room now", settings)
		}
	}
}

// A group of containers that run, for which nothing could be written when the agent came, gets its
// broker once there is room; so does the library.
func TestWhatAFullDiskPreventedIsDoneOnceThereIsRoom(t *testing.T) {
	if !onSmallDisk(t) {
		return
	}
	first := newPlugin(t, 8)
	container := running("1", create(t, first, "a", "1"))
	if err := os.Remove(first.brokers.configuration((group{"namespace/shop", "a"}).id())); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(first.libraries.root); err != nil {
		t.Fatal(err)
	}
	empty := fill(t)
	second := next(t, first, "")
	second.mend()
	synchronize(t, second, container)
	if create(t, second, "a", "2") != nil || len(second.brokers.running) != 0 {
		t.Fatal("the disk is not full")
	}
	empty()
	second.mend()
	if len(second.brokers.running) != 1 {
		t.Error("its group has no broker still")
	}
	if create(t, second, "a", "3") == nil {
		t.Error("the library is not there still")
	}
	if entries, err := os.ReadDir(second.libraries.root); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

// early is a plugin of somebody else's, which the runtime asks before this one.
type early struct{ preload string }

func (e early) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjustment := &api.ContainerAdjustment{}
	adjustment.AddEnv("LD_PRELOAD", e.preload)
	return adjustment, nil, nil
}

// The runtime fails a container for which two plugins set one variable.
func TestAnotherPluginsPreloadIsKeptAndTheContainerStarts(t *testing.T) {
	p := newPlugin(t, 8)
	socket := filepath.Join(t.TempDir(), "nri.sock")
	synchronized := make(chan bool, 10)
	tell := func(ctx context.Context, all adaptation.SyncCB) error {
		_, err := all(ctx, nil, nil)
		synchronized <- true
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	runtime, err := adaptation.New("test", "1", tell, update, adaptation.WithSocketPath(socket), adaptation.WithPluginPath(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Start(); err != nil {
		t.Fatal(err)
	}
	defer runtime.Stop()
	<-synchronized
	ctx, stop := context.WithCancel(context.Background())
	other, err := stub.New(early{"/opt/other.so"}, stub.WithPluginName("other"), stub.WithPluginIdx("10"), stub.WithSocketPath(socket))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	go serve(ctx, p, socket, p.meters)
	defer stop()
	for range 2 {
		select {
		case <-synchronized:
		case <-time.After(time.Minute):
			t.Fatal("the plugins do not register")
		}
	}
	asked := &adaptation.CreateContainerRequest{Pod: pod("shop", groupAnnotation, "a"), Container: &api.Container{Id: "1", Env: []string{"PATH=/bin"}}}
	// Registering ends a little after the runtime has told what runs.
	deadline := time.Now().Add(10 * time.Second)
	for {
		reply, err := runtime.CreateContainer(ctx, asked)
		if err != nil {
			t.Fatalf("the container does not start: %v", err)
		}
		set := preloads(reply.GetAdjust())
		if slices.Equal(set, []string{preload + ":/opt/other.so"}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q", set)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// preloads returns what an adjustment sets the variable to; more than one value is one too many.
func preloads(adjustment *api.ContainerAdjustment) []string {
	set := []string{}
	for _, entry := range adjustment.GetEnv() {
		if entry.GetKey() == "LD_PRELOAD" {
			set = append(set, entry.GetValue())
		}
	}
	return set
}

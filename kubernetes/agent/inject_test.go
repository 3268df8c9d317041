package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
)

func TestAListOfPreloadsIsKept(t *testing.T) {
	const own = "/usr/lib/ginnel/$LIB/libginnel_shim.so"
	for before, after := range map[string]string{
		"":                          own,
		"/lib/a.so":                 own + ":/lib/a.so",
		"/lib/a.so /lib/b.so":       own + ":/lib/a.so:/lib/b.so",
		own + ":/lib/a.so":          own + ":/lib/a.so",
		"/x/libginnel_shim.so":      own,
		"libjemalloc.so.2::libm.so": own + ":libjemalloc.so.2:libm.so",
	} {
		if list := withLibrary(before); list != after {
			t.Errorf("%q: %q", before, list)
		}
	}
}

func TestVolumesOfAPodsOwnStay(t *testing.T) {
	const empty, other = "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~empty-dir/run", "/var/lib/kubelet/pods/uid-2/volumes/kubernetes.io~empty-dir/run"
	pod := pod("shop")
	pod.Id, pod.Uid = "sandbox-1", "uid-1"
	for name, test := range map[string]struct {
		mount *api.Mount
		want  bool
	}{
		"the library's place":         {&api.Mount{Source: empty, Destination: "/usr/lib/ginnel"}, true},
		"within it":                   {&api.Mount{Source: empty, Destination: "/usr/lib/ginnel/lib"}, true},
		"the broker's place":          {&api.Mount{Source: empty, Destination: "/run/ginnel/broker/"}, true},
		"the same through a link":     {&api.Mount{Source: empty, Destination: "/var/run/ginnel/broker"}, true},
		"above":                       {&api.Mount{Source: empty, Destination: "/run/ginnel"}, false},
		"far above":                   {&api.Mount{Source: empty, Destination: "/run"}, false},
		"memory above":                {&api.Mount{Source: "tmpfs", Type: "tmpfs", Destination: "/run"}, false},
		"above, read-only":            {&api.Mount{Source: empty, Destination: "/run", Options: []string{"rbind", "ro"}}, true},
		"the same through a link, ro": {&api.Mount{Source: empty, Destination: "/var/run", Options: []string{"ro"}}, true},
		"a library of the pod's":      {&api.Mount{Source: empty, Destination: "/lib", Options: []string{"ro"}}, true},
		"above, and it outlasts":      {&api.Mount{Source: "/mnt/disk", Destination: "/run"}, true},
		"beside":                      {&api.Mount{Source: "/mnt/disk", Destination: "/usr/lib/ginnel-x"}, false},
		"elsewhere":                   {&api.Mount{Source: "/mnt/disk", Destination: "/data", Options: []string{"ro"}}, false},
		"secrets":                     {&api.Mount{Source: "/mnt/secrets", Destination: "/var/run/secrets/x", Options: []string{"ro"}}, false},
		"the sandbox's memory":        {&api.Mount{Source: "/run/sandboxes/sandbox-1/shm", Destination: "/dev/shm"}, false},
		"an emptyDir for memory":      {&api.Mount{Source: empty, Destination: "/dev/shm"}, false},
		"another pod's":               {&api.Mount{Source: other, Destination: "/dev/shm"}, true},
		"the host's memory":           {&api.Mount{Source: "/dev/shm", Destination: "/dev/shm"}, true},
		"a part of it":                {&api.Mount{Source: "/dev/shm/part", Destination: "/dev/shm/"}, true},
		"a volume of many pods":       {&api.Mount{Source: "/mnt/disk", Destination: "/dev/shm"}, true},
	} {
		if got := taken(pod, &api.Container{Mounts: []*api.Mount{test.mount}}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func installed(t *testing.T, image, host string) *libraries {
	libraries, err := newLibraries(image, host)
	if err == nil {
		err = libraries.install()
	}
	if err != nil || !libraries.isThere() {
		t.Fatal(err)
	}
	return libraries
}

// A plugin on directories of the test's, with a broker that only waits.
func newPlugin(t *testing.T, groups int) *plugin {
	root := t.TempDir()
	image := filepath.Join(root, "image")
	if err := os.Mkdir(image, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, library), []byte("library"), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(root, "broker")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	libraries := installed(t, image, filepath.Join(root, "libraries"))
	meters := newMeters()
	brokers := newBrokers(program, filepath.Join(root, "groups"), "", groups, meters)
	t.Cleanup(func() {
		for _, known := range brokers.running {
			known.stop()
		}
	})
	p := &plugin{libraries: libraries, brokers: brokers, namespaces: none{}, handlers: runtimes, meters: meters}
	synchronize(t, p)
	return p
}

// As the runtime does once the agent has registered.
func synchronize(t *testing.T, p *plugin, containers ...*api.Container) {
	if _, err := p.Synchronize(context.Background(), nil, containers); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, p *plugin, group, id string) *api.ContainerAdjustment {
	adjustment, _, err := p.CreateContainer(context.Background(), pod("shop", groupAnnotation, group), &api.Container{Id: id})
	if err != nil {
		t.Fatalf("an error would keep the container from starting: %v", err)
	}
	return adjustment
}

func TestAContainerIsGivenItsGroupsBrokerAlone(t *testing.T) {
	p := newPlugin(t, 8)
	a, b, again := create(t, p, "a", "1"), create(t, p, "b", "2"), create(t, p, "a", "3")
	for _, adjustment := range []*api.ContainerAdjustment{a, b} {
		if len(adjustment.Mounts) != 2 || len(adjustment.Env) != 2 {
			t.Fatalf("%v", adjustment)
		}
		for _, mount := range adjustment.Mounts {
			if _, err := os.Stat(mount.Source); err != nil || mount.Options[1] != "ro" {
				t.Errorf("%v %v", mount, err)
			}
		}
	}
	if a.Mounts[1].Source == b.Mounts[1].Source || a.Mounts[1].Source != again.Mounts[1].Source {
		t.Errorf("%v, %v, %v", a.Mounts, b.Mounts, again.Mounts)
	}
}

func TestWhateverIsWrongContainersStart(t *testing.T) {
	p := newPlugin(t, 1)
	if create(t, p, "a", "1") == nil {
		t.Fatal("the first group has a broker")
	}
	if create(t, p, "b", "2") != nil {
		t.Error("more groups than there may be")
	}
	p.libraries.current = filepath.Join(p.libraries.root, "gone")
	if create(t, p, "a", "3") != nil {
		t.Error("there is no library")
	}
	p.libraries = nil
	if create(t, p, "a", "4") != nil {
		t.Error("the agent itself is broken")
	}
}

func TestAnEarlierAgentsContainersAreKnown(t *testing.T) {
	p := newPlugin(t, 8)
	old := filepath.Join(p.libraries.root, "old")
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	directory := p.brokers.directory(group{"namespace/shop", "a"}.id())
	container := &api.Container{Id: "1", State: api.ContainerState_CONTAINER_RUNNING, Mounts: []*api.Mount{
		{Source: old, Destination: libraryInside}, {Source: directory, Destination: brokerInside},
	}}
	p.isKnown = false
	p.tidy()
	if _, err := os.Stat(old); err != nil {
		t.Fatal("who has not heard yet what there is takes nothing away")
	}
	synchronize(t, p, container)
	if len(p.brokers.running) != 1 {
		t.Error("its group has no broker")
	}
	if _, err := os.Stat(old); err != nil {
		t.Error("the library that it has mapped is gone")
	}
	if _, err := p.StopContainer(context.Background(), nil, container); err != nil {
		t.Fatal(err)
	}
	p.tidy()
	if _, err := os.Stat(old); err == nil {
		t.Error("nobody has that version any more")
	}
	if _, err := os.Stat(p.libraries.current); err != nil {
		t.Error("the current one stays")
	}
}

// Who may make pods in one namespace names as many groups as he likes there.
func TestNoNamespaceTakesAllGroups(t *testing.T) {
	p := newPlugin(t, 8)
	in := func(namespace, name string) *api.ContainerAdjustment {
		adjustment, _, err := p.CreateContainer(context.Background(), pod(namespace, groupAnnotation, name), &api.Container{})
		if err != nil {
			t.Fatal(err)
		}
		return adjustment
	}
	taken := 0
	for name := 'a'; name <= 'z'; name++ {
		if in("greedy", string(name)) != nil {
			taken++
		}
	}
	if taken == 0 || taken > 4 {
		t.Errorf("the greedy one has %d of 8", taken)
	}
	if in("greedy", "a") == nil {
		t.Error("a group that there is goes on")
	}
	if in("other", "a") == nil || in("third", "a") == nil {
		t.Error("nothing is left for others")
	}
}

func age(p *plugin, by time.Duration) {
	for _, known := range p.brokers.running {
		known.used = known.used.Add(-by)
	}
}

func TestGroupsWithoutContainersMakeRoom(t *testing.T) {
	p := newPlugin(t, 1)
	adjustment := create(t, p, "a", "1")
	container := &api.Container{Id: "1", Mounts: adjustment.GetMounts()}
	if err := p.PostCreateContainer(context.Background(), nil, container); err != nil {
		t.Fatal(err)
	}
	age(p, 2*fresh)
	if create(t, p, "b", "2") != nil {
		t.Fatal("the container's broker was taken away")
	}
	if _, err := p.StopContainer(context.Background(), nil, container); err != nil {
		t.Fatal(err)
	}
	if create(t, p, "b", "2") != nil {
		t.Error("its container may be about to come again")
	}
	age(p, 2*fresh)
	if create(t, p, "b", "2") == nil {
		t.Error("a group without containers keeps others out")
	}
}

func TestNothingOfAGroupStays(t *testing.T) {
	p := newPlugin(t, 8)
	create(t, p, "a", "1")
	// As earlier agents leave it: of one group long ago, of another one just now.
	long, now := (group{"namespace/x", "long"}).id(), (group{"namespace/x", "now"}).id()
	other := filepath.Join(p.brokers.root, "other")
	for _, directory := range []string{p.brokers.directory(long), p.brokers.directory(now), other} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-2 * idle)
	for _, directory := range []string{filepath.Join(p.brokers.root, long), other} {
		if err := os.Chtimes(directory, before, before); err != nil {
			t.Fatal(err)
		}
	}
	age(p, 2*idle)
	p.tidy()
	entries, err := os.ReadDir(p.brokers.root)
	if err != nil || len(p.brokers.running) != 0 {
		t.Fatal(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	slices.Sort(names)
	want := []string{now, "other"}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("%v, rather than %v", names, want)
	}
}

// A new agent counts the groups that it finds to whom they belong.
func TestAnEarlierAgentsGroupsHaveTheirNames(t *testing.T) {
	p := newPlugin(t, 8)
	create(t, p, "a", "1")
	id := (group{"namespace/shop", "a"}).id()
	if name, scope := p.brokers.nameOf(id); name != "namespace/shop/a" || scope != "namespace/shop" {
		t.Errorf("%q %q", name, scope)
	}
	if err := os.WriteFile(p.brokers.configuration(id), []byte(head+"\"namespace/other/a\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, scope := p.brokers.nameOf(id); scope != "" {
		t.Errorf("a name that is not its own: %q", scope)
	}
}

// Mounts from elsewhere name no group: a container could say anything there.
func TestADirectoryOfNoGroupIsNone(t *testing.T) {
	p := newPlugin(t, 8)
	for _, directory := range []string{"", "/run/ginnel/broker", "/", p.brokers.root, filepath.Join(p.brokers.root, "x"), p.brokers.directory("x")} {
		if id := p.brokers.idOf(directory); id != "" {
			t.Errorf("%q: %q", directory, id)
		}
	}
}

func TestALibraryIsInstalledOnceAndMadeAnewWhereItIsDamaged(t *testing.T) {
	root := t.TempDir()
	image, host := filepath.Join(root, "image"), filepath.Join(root, "host")
	if err := os.MkdirAll(filepath.Join(image, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, library), []byte("library"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../"+library, filepath.Join(image, "lib", library)); err != nil {
		t.Fatal(err)
	}
	first := installed(t, image, host)
	if err := os.WriteFile(filepath.Join(first.current, library), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := installed(t, image, host)
	if second.current != first.current {
		t.Errorf("%s and %s", first.current, second.current)
	}
	text, err := os.ReadFile(filepath.Join(second.current, "lib", library))
	if err != nil || string(text) != "library" {
		t.Errorf("%q %v", text, err)
	}
	if entries, _ := os.ReadDir(host); len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}

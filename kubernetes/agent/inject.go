package main

// What a container is given: two directories, read-only, and one variable.

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

const (
	// libraryInside is where the library lies in a container.
	libraryInside = "/usr/lib/ginnel"
	// brokerInside is where the library asks for a broker if nothing else is said.
	brokerInside = "/run/ginnel/broker"
	// library is the file. Each dynamic linker follows preload to its own: glibc's puts the name of
	// its folder for $LIB, musl's takes it as it stands.
	library = "libginnel_shim.so"
	preload = libraryInside + "/$LIB/" + library
)

// adjust returns what the runtime is to change in a container. From and broker: directories of the
// host with the library and the socket.
func adjust(container *api.Container, from, broker string) *api.ContainerAdjustment {
	adjustment := &api.ContainerAdjustment{}
	options := []string{"bind", "ro", "nosuid", "nodev"}
	adjustment.AddMount(&api.Mount{Source: from, Destination: libraryInside, Type: "bind", Options: options})
	adjustment.AddMount(&api.Mount{
		Source: broker, Destination: brokerInside, Type: "bind", Options: append(options, "noexec"),
	})
	// Another plugin may have set it. The runtime fails a container in which two set one variable, but
	// not where the later one removes it first; what the earlier one wanted is in the list.
	adjustment.RemoveEnv("LD_PRELOAD")
	adjustment.AddEnv("LD_PRELOAD", withLibrary(variable(container.GetEnv(), "LD_PRELOAD")))
	return adjustment
}

// taken holds where what a container has mounted itself leaves no place for the two directories, or
// would hand it somebody else's shared memory.
func taken(pod *api.PodSandbox, container *api.Container) bool {
	for _, mount := range container.GetMounts() {
		at := placeOf(mount.GetDestination())
		// Volumes of other kinds can be in pods of several groups, the host's /dev/shm among them.
		if at == "/dev/shm" && !endsWithPod(pod, mount) && !isSandboxs(pod, mount) {
			return true
		}
		for _, own := range []string{libraryInside, brokerInside} {
			// What is mounted last would hide the other.
			if at == own || strings.HasPrefix(at, own+"/") {
				return true
			}
			// The runtime makes the place in the volume. In one that is read-only it fails, and the
			// container with it; one that outlasts the pod would keep an empty directory.
			if at != "/" && strings.HasPrefix(own, at+"/") && (slices.Contains(mount.GetOptions(), "ro") || !endsWithPod(pod, mount)) {
				return true
			}
		}
	}
	return false
}

// placeOf returns where a mount lies in the usual image, in which these two are links.
func placeOf(destination string) string {
	at := filepath.Clean(destination)
	for link, to := range map[string]string{"/var/run": "/run", "/lib": "/usr/lib"} {
		if rest, is := strings.CutPrefix(at+"/", link+"/"); is {
			return filepath.Join(to, rest)
		}
	}
	return at
}

// endsWithPod holds for memory of the container's own, and for a volume emptyDir.
func endsWithPod(pod *api.PodSandbox, mount *api.Mount) bool {
	directory := "/pods/" + pod.GetUid() + "/volumes/kubernetes.io~empty-dir/"
	return mount.GetType() == "tmpfs" || pod.GetUid() != "" && strings.Contains(filepath.Clean(mount.GetSource()), directory)
}

// isSandboxs holds for what the runtime made for the pod: its path has the pod's number.
func isSandboxs(pod *api.PodSandbox, mount *api.Mount) bool {
	return pod.GetId() != "" && strings.Contains(mount.GetSource(), pod.GetId())
}

// withLibrary returns a list of preloads (ld.so(8)) with the library first, once; the rest is kept.
func withLibrary(before string) string {
	list := []string{preload}
	for _, other := range strings.FieldsFunc(before, func(c rune) bool { return c == ':' || c == ' ' }) {
		if filepath.Base(other) != library {
			list = append(list, other)
		}
	}
	return strings.Join(list, ":")
}

// variable returns the value that a program sees: the first one of that name.
func variable(environment []string, name string) string {
	for _, entry := range environment {
		if value, found := strings.CutPrefix(entry, name+"="); found {
			return value
		}
	}
	return ""
}

// given returns the directories that a container was given, by its mounts: what an earlier agent gave
// is known by that. Empty strings: nothing.
func given(container *api.Container) (from, broker string) {
	for _, mount := range container.GetMounts() {
		switch mount.GetDestination() {
		case libraryInside:
			from = mount.GetSource()
		case brokerInside:
			broker = mount.GetSource()
		}
	}
	return from, broker
}

package main

// Which group a pod is in. Two pods may meet if their groups are one, and never otherwise: each
// group has a broker of its own, and a broker makes pairs only of those who ask it.

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

const (
	// groupAnnotation opts a pod in, or, on a namespace, all its pods. Its value names the group.
	groupAnnotation = "ginnel.dev/group"
	// injectAnnotation with the value "false" leaves a pod of such a namespace out.
	injectAnnotation = "ginnel.dev/inject"
	// excludeAnnotation names containers of a pod that are left out, divided by commas.
	excludeAnnotation = "ginnel.dev/exclude"
	// realmAnnotation on namespaces lets their groups of one name be one group. It counts only
	// there: who may make pods in a namespace is not to choose whom they meet outside of it.
	realmAnnotation = "ginnel.dev/realm"

	longestName = 63
	// idSize: bytes of a hash that name a group's directory.
	idSize = 16
)

// A group is who may meet.
type group struct {
	// scope is "namespace/NAME" or "realm/NAME".
	scope string
	name  string
}

func (g group) String() string { return g.scope + "/" + g.name }

// id names the group's directory. A socket's path is short, and names of namespaces are not.
func (g group) id() string {
	sum := sha256.Sum256([]byte(g.String()))
	return hex.EncodeToString(sum[:idSize])
}

// Why a container is left as it is: labels of a metric, and words of the log.
type reason string

const (
	injected       reason = "injected"
	notAsked       reason = "not_asked"
	optedOut       reason = "opted_out"
	badName        reason = "bad_name"
	hostIPC        reason = "host_ipc"
	otherRuntime   reason = "other_runtime"
	excluded       reason = "excluded"
	noLibrary      reason = "no_library"
	noBroker       reason = "no_broker"
	takenPath      reason = "taken_path"
	internalReason reason = "internal"
)

var reasons = []reason{injected, notAsked, optedOut, badName, hostIPC, otherRuntime, excluded, noLibrary, noBroker, takenPath, internalReason}

// decide says in which group a container is. Namespace: the annotations of the pod's namespace; nil
// where they are not known.
func decide(pod *api.PodSandbox, container string, namespace map[string]string, handlers []string) (group, reason) {
	own, asked := pod.GetAnnotations()[groupAnnotation]
	name, ofNamespace := namespace[groupAnnotation]
	if asked {
		name = own
	}
	switch {
	case !asked && !ofNamespace:
		return group{}, notAsked
	case pod.GetAnnotations()[injectAnnotation] == "false":
		return group{}, optedOut
	case !isName(name):
		return group{}, badName
	case !slices.Contains(handlers, pod.GetRuntimeHandler()):
		return group{}, otherRuntime
	case !hasOwnIPC(pod):
		return group{}, hostIPC
	case slices.Contains(words(pod.GetAnnotations()[excludeAnnotation]), container):
		return group{}, excluded
	}
	if realm, shared := namespace[realmAnnotation]; shared {
		if !isName(realm) {
			return group{}, badName
		}
		return group{scope: "realm/" + realm, name: name}, injected
	}
	return group{scope: "namespace/" + pod.GetNamespace(), name: name}, injected
}

// A pod in the host's IPC namespace has the host's /dev/shm: there it would share a segment with
// programs of the host, and with pods of other groups.
func hasOwnIPC(pod *api.PodSandbox) bool {
	for _, namespace := range pod.GetLinux().GetNamespaces() {
		if namespace.GetType() == "ipc" {
			return true
		}
	}
	return false
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
}

// isName holds for what Kubernetes takes for a label's value, but the empty one.
func isName(name string) bool {
	good := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	return name != "" && len(name) <= longestName && strings.IndexFunc(name, func(c rune) bool { return !good(c) }) < 0
}

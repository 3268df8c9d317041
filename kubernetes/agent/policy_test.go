package main

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
)

var runtimes = []string{"", "runc"}

func pod(namespace string, annotations ...string) *api.PodSandbox {
	pod := &api.PodSandbox{Namespace: namespace, Annotations: map[string]string{}}
	for i := 0; i+1 < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	pod.Linux = &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network"}, {Type: "ipc"}}}
	return pod
}

func TestWhoIsInWhichGroup(t *testing.T) {
	long := string(make([]byte, longestName+1))
	host := pod("shop", groupAnnotation, "a")
	host.Linux.Namespaces = []*api.LinuxNamespace{{Type: "network"}}
	machine := pod("shop", groupAnnotation, "a")
	machine.RuntimeHandler = "kata"
	for name, test := range map[string]struct {
		pod       *api.PodSandbox
		namespace map[string]string
		group     string
		why       reason
	}{
		"nobody asked":               {pod("shop"), nil, "", notAsked},
		"the pod asks":               {pod("shop", groupAnnotation, "a"), nil, "namespace/shop/a", injected},
		"the namespace asks":         {pod("shop"), map[string]string{groupAnnotation: "a"}, "namespace/shop/a", injected},
		"the pod's name counts":      {pod("shop", groupAnnotation, "b"), map[string]string{groupAnnotation: "a"}, "namespace/shop/b", injected},
		"the pod opts out":           {pod("shop", injectAnnotation, "false"), map[string]string{groupAnnotation: "a"}, "", optedOut},
		"namespaces share a realm":   {pod("shop"), map[string]string{groupAnnotation: "a", realmAnnotation: "r"}, "realm/r/a", injected},
		"a pod chooses no realm":     {pod("shop", groupAnnotation, "a", realmAnnotation, "r"), nil, "namespace/shop/a", injected},
		"no name":                    {pod("shop", groupAnnotation, ""), nil, "", badName},
		"a path for a name":          {pod("shop", groupAnnotation, "../a"), nil, "", badName},
		"a slash in a realm":         {pod("shop"), map[string]string{groupAnnotation: "a", realmAnnotation: "r/s"}, "", badName},
		"a name that is too long":    {pod("shop", groupAnnotation, long), nil, "", badName},
		"the host's shared memory":   {host, nil, "", hostIPC},
		"a virtual machine":          {machine, nil, "", otherRuntime},
		"a container that is named":  {pod("shop", groupAnnotation, "a", excludeAnnotation, "proxy, server"), nil, "", excluded},
		"another container is named": {pod("shop", groupAnnotation, "a", excludeAnnotation, "proxy"), nil, "namespace/shop/a", injected},
	} {
		t.Run(name, func(t *testing.T) {
			group, why := decide(test.pod, "server", test.namespace, runtimes)
			if why != test.why || why == injected && group.String() != test.group {
				t.Errorf("%v, %v", group, why)
			}
		})
	}
}

// A namespace may not be named so that it is taken for a realm, or for another one's group.
func TestGroupsAreTheirOwn(t *testing.T) {
	groups := []group{
		{"namespace/a", "b"}, {"realm/a", "b"}, {"namespace/a", "c"}, {"namespace/b", "b"}, {"realm/a", "c"}, {"namespace/a", "B"},
	}
	seen := map[string]group{}
	for _, group := range groups {
		if other, there := seen[group.id()]; there {
			t.Errorf("%v and %v have one directory", group, other)
		}
		seen[group.id()] = group
	}
}

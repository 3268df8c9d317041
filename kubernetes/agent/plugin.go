package main

// The agent as the container runtime sees it: a plugin of NRI, the Node Resource Interface. It looks at
// each container before it is made.
//
// Whatever happens here, containers start. The runtime goes on without a plugin that is gone, hangs or
// breaks the protocol; a plugin that answers with an error fails the container, so this one never does.

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/containerd/nri/pkg/api"
)

type plugin struct {
	libraries  *libraries
	brokers    *brokers
	namespaces namespaces
	handlers   []string
	meters     *meters

	mutex sync.Mutex
	// containers that run and were given something.
	containers map[string]use
	// isKnown: the runtime has said which containers there are. Before that none is known, and all
	// may be there: an agent that finds no runtime is to take nothing away.
	isKnown bool
}

// use is what a container was given.
type use struct{ library, group string }

// namespaces says which annotations a namespace has; nil where that is not known.
type namespaces interface {
	annotations(name string) map[string]string
}

// Synchronize is called once, when the agent has registered: with all that there is.
func (p *plugin) Synchronize(_ context.Context, _ []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	found := map[string]use{}
	for _, container := range containers {
		if container.GetState() != api.ContainerState_CONTAINER_STOPPED {
			p.resume(container, found)
		}
	}
	// All at once: who tidies meanwhile would take what is not noted yet for unused.
	p.mutex.Lock()
	p.containers, p.isKnown = found, true
	p.mutex.Unlock()
	p.meters.running.Set(float64(len(found)))
	slog.Info("registered with the runtime", "containers", len(containers), "in groups", len(found))
	p.tidy()
	return nil, nil
}

// CreateContainer is called before a container is made.
func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) (adjustment *api.ContainerAdjustment, _ []*api.ContainerUpdate, _ error) {
	defer func() {
		if broken := recover(); broken != nil {
			slog.Error("a container starts without the library", "why", broken, "stack", string(debug.Stack()))
			p.meters.containers.WithLabelValues(string(internalReason)).Inc()
			adjustment = nil
		}
	}()
	adjustment, name, why := p.judge(pod, container)
	p.meters.containers.WithLabelValues(string(why)).Inc()
	if why != notAsked {
		slog.Info("container", "namespace", pod.GetNamespace(), "pod", pod.GetName(), "container", container.GetName(), "group", name, "result", string(why))
	}
	return adjustment, nil, nil
}

func (p *plugin) judge(pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, string, reason) {
	group, why := decide(pod, container.GetName(), p.namespaces.annotations(pod.GetNamespace()), p.handlers)
	if why != injected {
		return nil, "", why
	}
	if taken(pod, container) {
		return nil, group.String(), takenPath
	}
	if !p.libraries.isThere() {
		return nil, group.String(), noLibrary
	}
	directory, err := p.brokers.want(group)
	if errors.Is(err, errTooMany) {
		// Those that only wait for pods that may come again make room.
		_, groups := p.used()
		p.brokers.stopUnused(groups, fresh)
		directory, err = p.brokers.want(group)
	}
	if err != nil {
		slog.Warn("no broker", "group", group.String(), "why", err)
		return nil, group.String(), noBroker
	}
	return adjust(container, p.libraries.current, directory), group.String(), injected
}

// PostCreateContainer is called once the container is made, with what it was given.
func (p *plugin) PostCreateContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.resume(container, p.containers)
	p.meters.running.Set(float64(len(p.containers)))
	return nil
}

// StopContainer is called when a container ends, too.
func (p *plugin) StopContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) ([]*api.ContainerUpdate, error) {
	p.forget(container)
	return nil, nil
}

// RemoveContainer is called at the last.
func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	p.forget(container)
	return nil
}

// resume has a broker for the group that a container was put into, and notes the container.
func (p *plugin) resume(container *api.Container, among map[string]use) {
	from, directory := given(container)
	id := p.brokers.idOf(directory)
	if id == "" {
		return
	}
	if err := p.brokers.resume(id); err != nil {
		slog.Warn("no broker", "group", id, "why", err)
	}
	among[container.GetId()] = use{library: from, group: id}
}

func (p *plugin) forget(container *api.Container) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.containers, container.GetId())
	p.meters.running.Set(float64(len(p.containers)))
}

// mend makes up for what could not be done when it was due, for want of room on the disk for instance:
// the library is installed, and groups of containers that run have brokers.
func (p *plugin) mend() {
	if !p.libraries.isThere() {
		if err := p.libraries.install(); err != nil {
			slog.Warn("the library is not installed: new containers start without", "why", err)
		}
	}
	_, groups := p.used()
	for id := range groups {
		if err := p.brokers.resume(id); err != nil {
			slog.Warn("no broker", "group", id, "why", err)
		}
	}
}

// tidy takes away what no container has.
func (p *plugin) tidy() {
	if !p.knows() {
		return
	}
	libraries, groups := p.used()
	p.brokers.stopUnused(groups, idle)
	p.brokers.removeLeft(groups)
	p.libraries.removeUnused(libraries)
}

// knows holds once the runtime has said which containers there are.
func (p *plugin) knows() bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.isKnown
}

// used returns what containers have.
func (p *plugin) used() (libraries, groups map[string]bool) {
	libraries, groups = map[string]bool{}, map[string]bool{}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, use := range p.containers {
		libraries[use.library], groups[use.group] = true, true
	}
	return libraries, groups
}

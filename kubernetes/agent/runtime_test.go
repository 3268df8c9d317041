package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// NRI tells of eight pods and containers in one message at least, of 4 MiB at most. Pods that are
// larger keep the runtime from telling anything: and then nothing may be taken for unused.
func TestPodsThatAreTooLargeHaveNothingTakenAway(t *testing.T) {
	p := newPlugin(t, 8)
	p.isKnown = false
	old := filepath.Join(p.libraries.root, "old")
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	pods, containers := []*api.PodSandbox{}, []*api.Container{}
	for number := range 12 {
		id := fmt.Sprint(number)
		environment := []string{}
		for range 12 {
			environment = append(environment, "LARGE="+strings.Repeat("x", 100_000))
		}
		pods = append(pods, &api.PodSandbox{Id: id})
		containers = append(containers, &api.Container{Id: id, PodSandboxId: id, Env: environment, Mounts: []*api.Mount{
			{Source: old, Destination: libraryInside}, {Source: p.brokers.directory((group{"namespace/shop", "a"}).id()), Destination: brokerInside},
		}})
	}
	told := make(chan error, 100)
	tell := func(ctx context.Context, all adaptation.SyncCB) error {
		_, err := all(ctx, pods, containers)
		// The runtime asks its plugins when it starts, too: there is none yet.
		if err != nil {
			told <- err
		}
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	socket := filepath.Join(t.TempDir(), "nri.sock")
	runtime, err := adaptation.New("test", "1", tell, update, adaptation.WithSocketPath(socket), adaptation.WithPluginPath(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Start(); err != nil {
		t.Fatal(err)
	}
	defer runtime.Stop()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- serve(ctx, p, socket, p.meters) }()
	select {
	case err := <-told:
		t.Log(err)
	case <-time.After(time.Minute):
		t.Fatal("the runtime tells nothing, and no error")
	}
	p.tidy()
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(old); err != nil || p.knows() {
		t.Error("a library that pods have is gone")
	}
}

func TestWhatEndsAtOnceIsBegunAgainLessAndLess(t *testing.T) {
	pause := firstPause
	for range 10 {
		pause = nextPause(pause, time.Second)
	}
	if pause != lastPause || nextPause(pause, 2*lastPause) != firstPause {
		t.Error(pause)
	}
}

// ginnel-agent has pods of one node talk through shared memory. It is a plugin of the container
// runtime: a container of a pod that asks for it is given the library and its group's broker.
// kubernetes/chart/values.yaml has what can be set.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type options struct {
	image, libraries, run, broker, brokerSettings string
	socket, listen, kubeconfig, handlers          string
	api                                           bool
	groups                                        int
}

func main() {
	var o options
	flag.StringVar(&o.image, "library", "/usr/lib/ginnel", "directory with the library")
	flag.StringVar(&o.libraries, "host-library", "/var/lib/ginnel/library", "directory of the host, by the path that it has there, for the library")
	flag.StringVar(&o.run, "host-run", "/run/ginnel-agent/groups", "directory of the host, by the path that it has there, for the brokers' sockets")
	flag.StringVar(&o.broker, "broker", "/usr/bin/ginnel-broker", "the broker's program")
	flag.StringVar(&o.brokerSettings, "broker-settings", "", "settings of the brokers, as in ginneld.toml, divided by semicolons: memory = \"64M\"; pairs = 256")
	flag.StringVar(&o.socket, "nri-socket", api.DefaultSocketPath, "socket of the container runtime")
	flag.StringVar(&o.listen, "listen", ":9191", "address of /metrics; empty: none")
	flag.BoolVar(&o.api, "namespaces", true, "heed annotations of namespaces, which the API server is asked for")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server, outside of a pod")
	flag.StringVar(&o.handlers, "runtime-handlers", ",runc,crun", "handlers of pods that are heeded; others may be virtual machines")
	flag.IntVar(&o.groups, "groups", 64, "groups that the node may have at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o); err != nil && ctx.Err() == nil {
		slog.Error("ginnel-agent ends", "why", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	meters := newMeters()
	if o.listen != "" {
		go func() { slog.Error("no metrics", "why", meters.serve(o.listen)) }()
	}
	var known namespaces = none{}
	if o.api {
		watched, err := watch(ctx, o.kubeconfig)
		if err != nil {
			return fmt.Errorf("namespaces: %w", err)
		}
		known = watched
	}
	held, err := alone(ctx, o.run)
	if err != nil {
		return err
	}
	defer held.Close()
	libraries, err := newLibraries(o.image, o.libraries)
	if err != nil {
		return fmt.Errorf("the library: %w", err)
	}
	settings := strings.ReplaceAll(o.brokerSettings, ";", "\n")
	plugin := &plugin{
		libraries: libraries, brokers: newBrokers(o.broker, o.run, settings, o.groups, meters), namespaces: known,
		handlers: strings.Split(o.handlers, ","), meters: meters,
	}
	plugin.mend()
	go func() {
		for range time.Tick(time.Minute) {
			plugin.mend()
			plugin.tidy()
		}
	}()
	return serve(ctx, plugin, o.socket, meters)
}

// alone waits until no other agent works on this node. In an upgrade the new one is there before the
// old one ends. Both at once would each want the same mounts, and the runtime takes that for an error.
func alone(ctx context.Context, directory string) (*os.File, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(directory, "agent.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("lock: %w", err)
		}
		if !said {
			slog.Info("waiting for the agent before this one to end")
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// serve registers with the runtime, and again each time it has gone.
func serve(ctx context.Context, plugin *plugin, socket string, meters *meters) error {
	pause := firstPause
	for said := ""; ctx.Err() == nil; {
		runtime, err := stub.New(plugin, stub.WithPluginName("ginnel"), stub.WithPluginIdx("50"), stub.WithSocketPath(socket))
		if err != nil {
			return err
		}
		if err = runtime.Start(ctx); err == nil {
			began := time.Now()
			said = ""
			meters.attached.Set(1)
			stopped := context.AfterFunc(ctx, runtime.Stop)
			runtime.Wait()
			stopped()
			meters.attached.Set(0)
			pause = nextPause(pause, time.Since(began))
			slog.Warn("the runtime has gone, or asks no more", "told what runs", plugin.knows(), "again in", pause)
		} else if why := err.Error(); why != said {
			slog.Warn("the runtime does not answer: is NRI switched on?", "socket", socket, "why", err)
			said = why
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// nextPause returns how long to wait before something that ended after so long is begun again. A
// runtime that cannot tell what runs, since a pod is too large for a message, fails at once each time.
func nextPause(pause, lasted time.Duration) time.Duration {
	if lasted > lastPause {
		return firstPause
	}
	return min(2*pause, lastPause)
}

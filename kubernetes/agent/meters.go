package main

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// meters of this node, for Prometheus.
type meters struct {
	registry                           *prometheus.Registry
	containers                         *prometheus.CounterVec
	running, groups, brokers, attached prometheus.Gauge
	pairs, restarts                    prometheus.Counter
}

func newMeters() *meters {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &meters{
		registry: prometheus.NewRegistry(),
		containers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ginnel_agent_containers_total", Help: "Containers that the runtime made, by what the agent did.",
		}, []string{"result"}),
		running:  gauge("ginnel_agent_accelerated_containers", "Containers that run and have the library."),
		groups:   gauge("ginnel_agent_groups", "Groups that have a broker."),
		brokers:  gauge("ginnel_agent_brokers", "Brokers that run."),
		attached: gauge("ginnel_agent_registered", "1 while the runtime asks this agent."),
		pairs:    counter("ginnel_agent_pairs_total", "Pairs of processes that were given memory."),
		restarts: counter("ginnel_agent_broker_restarts_total", "Brokers that ended and were started anew."),
	}
	for _, reason := range reasons {
		m.containers.WithLabelValues(string(reason))
	}
	m.registry.MustRegister(m.containers, m.running, m.groups, m.brokers, m.attached, m.pairs, m.restarts)
	return m
}

// How many may ask at once, and for how long. Whoever reaches the port may: pods of every namespace.
const (
	askers      = 16
	askedWithin = 5 * time.Second
)

// serve answers Prometheus at an address.
func (m *meters) serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return m.answer(listener)
}

// answer does so until the listener is closed. What others keep open costs no more than so many
// connections; who comes then is turned away, and the brokers keep their memory, which is the same
// container's.
func (m *meters) answer(listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadTimeout: askedWithin, WriteTimeout: askedWithin, MaxHeaderBytes: 8 << 10}
	server.SetKeepAlivesEnabled(false)
	return server.Serve(&few{Listener: listener, places: make(chan struct{}, askers)})
}

// few is a listener with so many connections at once.
type few struct {
	net.Listener
	places chan struct{}
}

func (f *few) Accept() (net.Conn, error) {
	for {
		connection, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case f.places <- struct{}{}:
			return &one{Conn: connection, leave: sync.OnceFunc(func() { <-f.places })}, nil
		default:
			_ = connection.Close()
		}
	}
}

// one of them, which has its place until it is closed.
type one struct {
	net.Conn
	leave func()
}

func (o *one) Close() error {
	defer o.leave()
	return o.Conn.Close()
}

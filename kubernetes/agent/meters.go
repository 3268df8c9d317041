package main

import (
	"net/http"

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

// handler answers Prometheus, and the kubelet's probe: whoever waits for the agent before it to end
// is as well as who works.
func (m *meters) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(answer http.ResponseWriter, _ *http.Request) { _, _ = answer.Write([]byte("ok\n")) })
	return mux
}

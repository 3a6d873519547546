// Package metrics shows what shaper counts to Prometheus. Everything is read
// when it is scraped; between scrapes it costs nothing. The policy fixes the
// number of series: every reason and result is there from the start, as 0, and
// no label holds an address.
package metrics

import (
	"net/http"
	"runtime"

	"shaper/stats"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// New returns a collector that calls source once at each scrape. Source may be
// called concurrently.
func New(source func() stats.Status) prometheus.Collector { return collector{source} }

// Handler serves New(source) and the metrics of the Go runtime and the process.
// Classic histogram buckets go to everyone; native ones go to a Prometheus that
// asks for protobuf, as it does where native histograms are turned on.
func Handler(source func() stats.Status) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		New(source),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

type collector struct{ source func() stats.Status }

// Describe sends the descriptions of all series.
func (collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range all {
		descs <- d
	}
}

// Collect reads the source and sends every series.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	status := c.source()
	out := sender{metrics}
	out.daemon(status)
	for _, class := range status.Classes {
		out.class(class, proxyEngine)
	}
	for _, class := range status.Kernel {
		out.class(class, kernelEngine)
	}
	for _, listener := range status.Listeners {
		out.listener(listener)
	}
}

// The engines that shape a class, as a label: a class may be in both.
const (
	proxyEngine  = "proxy"
	kernelEngine = "tc"
)

// A sender turns readings into series.
type sender struct{ metrics chan<- prometheus.Metric }

func (s sender) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s.metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s sender) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sender) daemon(status stats.Status) {
	ok := 0.
	if status.Reload.OK {
		ok = 1
	}
	s.gauge(reloadOK, ok)
	s.gauge(reloadTime, float64(status.Reload.Succeeded.UnixMilli())/1000)
	s.gauge(configHash, 1, status.PolicyHash)
	s.gauge(buildInfo, 1, status.Version, runtime.Version())
}

// refusals are the reasons to refuse. All others befall what waits already, and
// that is dropped.
var refusals = []stats.Reason{stats.QueueFull, stats.MaxWait}

// class sends what an engine has counted for a class. The kernel knows no waits.
func (s sender) class(c stats.ClassReading, engine string) {
	for d := range stats.Directions() {
		v := c.Sent[d]
		s.counter(sentBytes, v.Bytes, c.Name, engine, d.String())
		s.counter(sentPackets, v.Packets, c.Name, engine, d.String())
		s.counter(sentConnections, v.Connections, c.Name, engine, d.String())
	}
	for r := range stats.Reasons() {
		s.counter(dropped, c.Dropped[r].Items, c.Name, engine, r.String())
		s.counter(droppedBytes, c.Dropped[r].Bytes, c.Name, engine, r.String())
	}
	for _, r := range refusals {
		s.counter(refused, c.Refused[r].Items, c.Name, engine, r.String())
		s.counter(refusedBytes, c.Refused[r].Bytes, c.Name, engine, r.String())
	}
	s.counter(overlimits, c.Overlimits, c.Name, engine)
	s.gauge(backlogBytes, float64(c.BacklogBytes), c.Name, engine)
	s.gauge(backlogItems, float64(c.BacklogItems), c.Name, engine)
	s.gauge(rate, c.Rate.PerSecond, c.Name, engine, c.Rate.Unit)
	if engine == proxyEngine {
		s.metrics <- newHistogram(wait, c.Wait, c.Name, engine)
	}
}

func (s sender) listener(l stats.ListenerReading) {
	s.gauge(sessions, float64(l.Open), l.Name)
	for r := range stats.Results() {
		s.counter(sessionsTotal, l.Ended[r], l.Name, r.String())
	}
	s.counter(acceptErrors, l.AcceptErrors, l.Name)
	s.counter(spliceRefused, l.SpliceRefused, l.Name)
}

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
		out.class(class)
	}
	for _, listener := range status.Listeners {
		out.listener(listener)
	}
}

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

func (s sender) class(c stats.ClassReading) {
	for d := range stats.Directions() {
		v := c.Sent[d]
		s.counter(sentBytes, v.Bytes, c.Name, d.String())
		s.counter(sentPackets, v.Packets, c.Name, d.String())
		s.counter(sentMessages, v.Messages, c.Name, d.String())
		s.counter(sentConnections, v.Connections, c.Name, d.String())
	}
	for r := range stats.Reasons() {
		s.counter(dropped, c.Dropped[r].Items, c.Name, r.String())
		s.counter(droppedBytes, c.Dropped[r].Bytes, c.Name, r.String())
	}
	for _, r := range refusals {
		s.counter(refused, c.Refused[r].Items, c.Name, r.String())
		s.counter(refusedBytes, c.Refused[r].Bytes, c.Name, r.String())
	}
	s.counter(overlimits, c.Overlimits, c.Name)
	if c.Rate.Unit == "messages" {
		s.feedback(c)
	}
	if c.Per != "" {
		s.gauge(keys, float64(c.Keys), c.Name)
		s.counter(keysShared, c.KeysShared, c.Name)
	}
	if would := c.Shadow; would != nil {
		s.counter(wouldDelay, would.WouldDelay, c.Name)
		s.counter(wouldDrop, would.WouldDrop, c.Name)
		s.metrics <- newHistogram(wouldWait, would.Wait, c.Name)
	}
	s.gauge(backlogBytes, float64(c.BacklogBytes), c.Name)
	s.gauge(backlogItems, float64(c.BacklogItems), c.Name)
	s.gauge(rate, c.Rate.PerSecond, c.Name, c.Rate.Unit)
	s.metrics <- newHistogram(wait, c.Wait, c.Name)
}

// feedback is what the provider's answers have made of a class.
func (s sender) feedback(c stats.ClassReading) {
	pauses := 0.
	if !c.PausedUntil.IsZero() {
		pauses = 1
	}
	s.gauge(inFlight, float64(c.InFlight), c.Name)
	s.gauge(paused, pauses, c.Name)
	s.gauge(share, c.Share, c.Name)
	for _, signal := range stats.Signals {
		s.counter(throttled, c.Throttled[signal], c.Name, signal)
	}
}

func (s sender) listener(l stats.ListenerReading) {
	s.gauge(sessions, float64(l.Open), l.Name)
	for r := range stats.Results() {
		s.counter(sessionsTotal, l.Ended[r], l.Name, r.String())
	}
	s.counter(acceptErrors, l.AcceptErrors, l.Name)
	for reason, n := range l.Unframed {
		s.counter(unframed, n, l.Name, reason)
	}
	s.counter(spliceRefused, l.SpliceRefused, l.Name)
}

// Package metrics exports the counters of shaper to Prometheus. Counters are read at each
// scrape; between scrapes the package does nothing. The policy fixes the number of series:
// every reason and result has a series from the start, and the only addresses in labels
// are those of upstreams, as the policy writes them.
//
// Each file calls only those below it:
//
//	metrics    the collector: a status becomes series
//	held       until when nothing leaves a class
//	histogram  a histogram of package stats as one of Prometheus
//	descs      the name, help text and labels of each metric
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"shaper/stats"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// New returns a collector that calls source once at each scrape. If scrapes overlap, they
// call source concurrently.
func New(source func() stats.Status) prometheus.Collector { return collector{source} }

// Handler serves New(source) and the metrics of the Go runtime and of the process. Every
// answer has classic histogram buckets. A Prometheus that asks for protobuf, as it does if
// native histograms are enabled, also gets the native ones.
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

// Describe sends nothing, which makes the collector unchecked. Checked descriptions of one
// name need the same labels, but only the kernel's series have the label engine.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect calls the source and sends every series.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	status := c.source()
	out := sender{metrics}
	out.daemon(status)
	held := heldUntil(status.Classes)
	for _, class := range status.Classes {
		out.class(class)
		out.time(heldTime, held[class.Name], class.Name)
	}
	for _, class := range status.Kernel {
		out.kernelClass(class)
	}
	for _, listener := range status.Listeners {
		out.listener(listener)
	}
}

// A sender sends readings as series to one scrape.
type sender struct{ metrics chan<- prometheus.Metric }

func (s sender) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s.metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s sender) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// time sends a time as a gauge: seconds since 1970, or 0 for the zero time.
func (s sender) time(d *prometheus.Desc, t time.Time, labels ...string) {
	v := 0.
	if !t.IsZero() {
		v = float64(t.UnixMilli()) / 1000
	}
	s.gauge(d, v, labels...)
}

// truth returns a condition as the value of a gauge.
func truth(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

func (s sender) daemon(status stats.Status) {
	s.gauge(reloadOK, truth(status.Reload.OK))
	s.time(reloadTime, status.Reload.Succeeded)
	s.state(status.Budgets)
	for _, f := range status.Fleets {
		s.fleet(f)
	}
	if kept := status.Kept; kept != nil {
		s.gauge(kernelInForce, truth(kept.Error == ""))
		s.counter(kernelCorrected, kept.Corrected)
	}
	s.gauge(configHash, 1, status.PolicyHash)
	s.gauge(buildInfo, 1, status.Version, runtime.Version())
	s.metrics <- newHistogram(lateness, status.Pacers.Lateness, lateBuckets)
}

// state sends how the state file was written.
func (s sender) state(r stats.StateReading) {
	if r.Path == "" {
		return
	}
	s.time(stateTime, r.Written)
	s.counter(stateFailures, r.Failures)
}

// fleet sends what this process sees of a fleet.
func (s sender) fleet(f stats.FleetReading) {
	s.gauge(fleetUp, truth(f.Up), f.Name)
	s.gauge(fleetMembers, float64(f.Members), f.Name)
	s.counter(fleetCalls, f.Calls-f.Failures, f.Name, "ok")
	s.counter(fleetCalls, f.Failures, f.Name, "failed")
	s.gauge(fleetCallTime, seconds(f.CallTime), f.Name)
	s.gauge(fleetClockError, seconds(f.ClockError), f.Name)
	if f.Headroom > 0 {
		s.gauge(fleetHeadroom, seconds(f.Headroom), f.Name)
	}
	for i, r := range f.Classes {
		if i > 0 && f.Classes[i-1].Class == r.Class {
			continue // a further limit: its own takes part in the first
		}
		s.shared(f.Classes[i:])
	}
}

// shared sends what this process has of a class: the first, and those that follow with its name are
// its further limits.
func (s sender) shared(all []stats.SharedReading) {
	first, away := all[0], stats.Seconds(0)
	for _, r := range all {
		if r.Class == first.Class {
			away = max(away, r.Fallback)
		}
	}
	s.metrics <- prometheus.MustNewConstMetric(fleetFallback, prometheus.CounterValue, seconds(away), first.Class)
	s.counter(fleetSlots, first.Used, first.Class, "used")
	s.counter(fleetSlots, first.Expired, first.Class, "expired")
	s.counter(fleetSlots, first.Returned, first.Class, "returned")
}

func seconds(d stats.Seconds) float64 { return time.Duration(d).Seconds() }

// refusals are the reasons for which an item is refused: the class has no room for it, or the server has ended while it waited. For
// all other reasons it is dropped.
var refusals = []stats.Reason{stats.QueueFull, stats.MaxWait, stats.Reset}

// class sends what the proxy counts for a class.
func (s sender) class(c stats.ClassReading) {
	s.gauge(classInfo, 1, c.Name, c.Parent)
	s.volumes(c, func(f family) *prometheus.Desc { return f.proxy })
	for d := range stats.Directions() {
		s.counter(sentRequests, c.Sent[d].Requests, c.Name, d.String())
	}
	s.gauge(oldest, seconds(c.Oldest), c.Name)
	s.metrics <- newHistogram(wait, c.Wait, waitBuckets, c.Name)
	if c.Rate.Unit == "messages" || c.Rate.Unit == "tokens" {
		s.feedback(c)
	}
	if c.Per != "" {
		s.gauge(keys, float64(c.Keys), c.Name)
		s.gauge(maxKeys, float64(c.MaxKeys), c.Name)
		s.counter(keysShared, c.KeysShared, c.Name)
	}
	for _, q := range c.Quotas {
		s.gauge(quotaRemaining, float64(q.Remaining), c.Name, q.Window)
		if !q.Resets.IsZero() {
			s.time(quotaResets, q.Resets, c.Name, q.Window)
		}
	}
	if would := c.Shadow; would != nil {
		s.counter(wouldDelay, would.WouldDelay, c.Name)
		s.counter(wouldDrop, would.WouldDrop, c.Name)
		s.metrics <- newHistogram(wouldWait, would.Wait, waitBuckets, c.Name)
	}
}

// kernelClass sends what the kernel counts for a class, which has no waits.
func (s sender) kernelClass(c stats.ClassReading) {
	s.volumes(c, func(f family) *prometheus.Desc { return f.kernel })
}

// volumes sends what both engines count. The function of picks the engine's series.
func (s sender) volumes(c stats.ClassReading, of func(family) *prometheus.Desc) {
	for d := range stats.Directions() {
		v := c.Sent[d]
		s.counter(of(sentBytes), v.Bytes, c.Name, d.String())
		s.counter(of(sentPackets), v.Packets, c.Name, d.String())
		s.counter(of(sentMessages), v.Messages, c.Name, d.String())
		s.counter(of(sentConnections), v.Connections, c.Name, d.String())
		if c.Rate.Unit == "tokens" {
			s.counter(of(sentTokens), v.Tokens, c.Name, d.String())
		}
	}
	for r := range stats.Reasons() {
		s.counter(of(dropped), c.Dropped[r].Items, c.Name, r.String())
		s.counter(of(droppedBytes), c.Dropped[r].Bytes, c.Name, r.String())
	}
	for _, r := range refusals {
		s.counter(of(refused), c.Refused[r].Items, c.Name, r.String())
		s.counter(of(refusedBytes), c.Refused[r].Bytes, c.Name, r.String())
	}
	s.counter(of(overlimits), c.Overlimits, c.Name)
	s.gauge(of(backlogBytes), float64(c.BacklogBytes), c.Name)
	s.gauge(of(backlogItems), float64(c.BacklogItems), c.Name)
	s.gauge(of(rate), c.Rate.PerSecond, c.Name, c.Rate.Unit)
	if c.Ceil != nil {
		s.gauge(of(ceil), c.Ceil.PerSecond, c.Name, c.Ceil.Unit)
	}
}

// feedback sends the state of a class that depends on the provider's answers.
func (s sender) feedback(c stats.ClassReading) {
	s.gauge(inFlight, float64(c.InFlight), c.Name)
	s.gauge(paused, truth(!c.PausedUntil.IsZero()), c.Name)
	s.gauge(share, c.Share, c.Name)
	if c.Learned > 0 {
		s.gauge(learned, c.Learned, c.Name)
	}
	for _, signal := range stats.Signals {
		s.counter(throttled, c.Throttled[signal], c.Name, signal)
	}
	s.retries(c)
	for _, fate := range stats.HintFates {
		s.counter(hinted, c.Hinted[fate], c.Name, fate)
	}
}

// retries sends what became of refused messages, if the class or one beneath it sends them again.
func (s sender) retries(c stats.ClassReading) {
	if c.Retry == 0 && len(c.Retries) == 0 {
		return
	}
	for _, signal := range stats.Refusals {
		for _, outcome := range stats.Retries {
			s.counter(retried, c.Retries[stats.Retry{Outcome: outcome, Signal: signal}], c.Name, signal, outcome)
		}
	}
}

func (s sender) listener(l stats.ListenerReading) {
	s.gauge(sessions, float64(l.Open), l.Name)
	for d := range stats.Directions() {
		s.counter(listenerSent, l.Sent[d].Bytes, l.Name, d.String())
	}
	for r := range stats.Results() {
		s.counter(sessionsTotal, l.Ended[r], l.Name, r.String())
	}
	s.counter(acceptErrors, l.AcceptErrors, l.Name)
	for reason, n := range l.Unframed {
		s.counter(unframed, n, l.Name, reason)
	}
	for reason, n := range l.Stray {
		s.counter(stray, n, l.Name, reason)
	}
	s.counter(spliceRefused, l.SpliceRefused, l.Name)
	s.upstreams(l)
	for upstream, failures := range l.UpstreamFailures {
		for why, n := range failures {
			s.counter(upstreamFailures, n, l.Name, upstream, why.String())
		}
	}
}

// upstreams sends the state of each upstream, with all its addresses.
func (s sender) upstreams(l stats.ListenerReading) {
	up, open := map[string]float64{}, map[string]int64{}
	for _, u := range l.Upstreams {
		up[u.Upstream] = max(up[u.Upstream], truth(u.IsUp()))
		open[u.Upstream] += u.Sessions
	}
	for upstream := range up {
		s.gauge(upstreamUp, up[upstream], l.Name, upstream)
		s.gauge(upstreamSessions, float64(open[upstream]), l.Name, upstream)
	}
}

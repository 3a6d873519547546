package sock

import "sync/atomic"

// watched is part of a Source in memory. It knows the poller that watches the source; the
// zero watched has none. Any number of goroutines may use it.
type watched struct {
	by atomic.Pointer[watch]
}

// watch is what Poller.Watch has asked for.
type watch struct {
	poller *Poller
	events Events
	key    uint64
}

// begin makes p watch the source, and makes the source due, so that it reports what is there
// already. The lock of p is held.
func (w *watched) begin(p *Poller, events Events, key uint64, t Turner) {
	w.by.Store(&watch{p, events | Broken | HungUp, key})
	p.revisit(t)
}

// unwatch ends the watch.
func (w *watched) unwatch(*Poller) { w.by.Store(nil) }

// news makes the source due for a turn, in which it reports its events.
func (w *watched) news(t Turner) {
	if by := w.by.Load(); by != nil {
		by.poller.Revisit(t)
	}
}

// report reports those events that are watched for. No lock is held.
func (w *watched) report(events Events) {
	if by := w.by.Load(); by != nil && events&by.events != 0 {
		by.poller.ready(by.key, events&by.events)
	}
}

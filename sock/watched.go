package sock

import "sync/atomic"

// watched is part of a Source in memory: who is told of it. The zero watched is nobody.
type watched struct {
	by atomic.Pointer[watch]
}

type watch struct {
	poller *Poller
	events Events
	key    uint64
}

// begin begins to tell a poller, whose lock is held: of what there is at first.
func (w *watched) begin(p *Poller, events Events, key uint64, t Turner) {
	w.by.Store(&watch{p, events | Broken | HungUp, key})
	p.revisit(t)
}

func (w *watched) unwatch(*Poller) { w.by.Store(nil) }

// news lets the poller tell soon what there is, by a turn.
func (w *watched) news(t Turner) {
	if by := w.by.Load(); by != nil {
		by.poller.Revisit(t)
	}
}

// tell tells of events, if somebody wants to know of them.
func (w *watched) tell(events Events) {
	if by := w.by.Load(); by != nil && events&by.events != 0 {
		by.poller.ready(by.key, events&by.events)
	}
}

package shaper

import (
	"time"

	"shaper/limit"
	"shaper/stats"
	"shaper/unit"
)

// A Hint is what an answer of the provider says of one of its limits: so many units remain until a
// time.
type Hint struct {
	Kind      unit.Kind // what it counts
	ID        uint64    // tells the limits of the provider apart
	Remaining int64
	Until     time.Time
}

// Heard says at now that the answer to an item has begun, and which hints it has. The class has let
// the item go at the time then, for a cost. The nearest class on the path that has hints and counts
// the unit of a hint keeps to it.
func (p Provider) Heard(now, then time.Time, cost Cost, hints []Hint) {
	c := p.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	for n := &c.node; n != nil; n = n.parent.Load() {
		if h := limit.HintsOf(bare(n.limiter)); h != nil {
			h.Answered(now, then, cost.in(n.kind))
		}
	}
	for _, hint := range hints {
		p.heard(now, then, hint)
	}
	c.update(now)
	root.wake(now)
}

// heard takes one hint. The lock of the tree is held.
func (p Provider) heard(now, then time.Time, hint Hint) {
	for n := &p.class.node; n != nil; n = n.parent.Load() {
		if h := limit.HintsOf(bare(n.limiter)); h != nil && n.kind == hint.Kind {
			h.Tell(now, then, limit.Hint{ID: hint.ID, Remaining: hint.Remaining, Until: hint.Until})
			n.class.tally.Hinted(stats.HintTaken)
			return
		}
	}
	p.class.tally.Hinted(stats.HintOtherUnit)
}

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
// the unit of a hint keeps to it. If a reload has replaced a class on the path, the path goes on
// with the heir of that class, and with the classes above the heir.
func (p Provider) Heard(now, then time.Time, cost Cost, hints []Hint) {
	for c := p.class; c != nil; {
		c, hints = hear(now, then, c, cost, hints)
	}
}

// hear is Heard up to a class that a reload has replaced. It returns the heir of that class, and the
// hints to which no class keeps so far.
func hear(now, then time.Time, c *Class, cost Cost, hints []Hint) (heir *Class, rest []Hint) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	n := &c.node
	for ; n != nil && n.class.heir == nil; n = n.parent.Load() {
		if h := limit.HintsOf(bare(n.limiter)); h != nil {
			h.Answered(now, then, cost.In(n.kind))
		}
	}
	if n != nil {
		heir = n.class.heir
	}
	for _, hint := range hints {
		switch {
		case tell(now, then, &c.node, n, hint):
		case heir != nil:
			rest = append(rest, hint)
		default:
			c.tally.Hinted(stats.HintOtherUnit)
		}
	}
	c.update(now)
	root.wake(now)
	return heir, rest
}

// tell reports whether a node keeps to a hint, or one of those above it and beneath end. The lock of
// the tree is held.
func tell(now, then time.Time, n, end *node, hint Hint) bool {
	for ; n != end; n = n.parent.Load() {
		if h := limit.HintsOf(bare(n.limiter)); h != nil && n.kind == hint.Kind {
			h.Tell(now, then, limit.Hint{ID: hint.ID, Remaining: hint.Remaining, Until: hint.Until})
			n.class.tally.Hinted(stats.HintTaken)
			return true
		}
	}
	return false
}

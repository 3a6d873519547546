package shaper

import (
	"time"

	"shaper/unit"
)

// charges reports whether the node or one above it counts anything of a cost.
func (n *node) charges(cost *Cost) bool {
	for ; n != nil; n = n.parent.Load() {
		if cost.in(n.kind) > 0 {
			return true
		}
	}
	return false
}

// Counts reports whether the class, or one above it, counts in a unit.
func (n *node) Counts(kind unit.Kind) bool { return n.counting(kind) != nil }

// counting returns the nearest node on the path to the root that counts in a unit; nil
// for none.
func (n *node) counting(kind unit.Kind) *node {
	for ; n != nil && n.kind != kind; n = n.parent.Load() {
	}
	return n
}

// Piece returns the most bytes of a stream that may be one item: the least that any class
// on the path to the root allows.
func (n *node) Piece() int64 {
	piece := n.piece.Load()
	for p := n.parent.Load(); p != nil; p = p.parent.Load() {
		piece = min(piece, p.piece.Load())
	}
	return piece
}

// passes reports whether what costs so much may leave without waiting: every class on the
// path allows it, and it overtakes nothing. What neither a class nor one above it counts
// overtakes nothing that waits for the class. contested reports whether something that
// waits may leave, and competes for a class that does not limit itself: what is charged
// then may change whose turn it is.
func (n *node) passes(now time.Time, cost *Cost) (passes, contested bool) {
	if n.queue.Len() > 0 || n.handing.Load() {
		return false, false
	}
	for ; n != nil; n = n.parent.Load() {
		contested = contested || n.feed != nil && n.feed.contested(now)
		if units := cost.in(n.kind); units > 0 && !n.passive && (contested || n.allows(now, units).After(now)) {
			return false, contested
		}
	}
	return true, contested
}

// A departure is what leaves a class, at a moment.
type departure struct {
	from    *node // the class that it leaves
	now     time.Time
	settles bool // Left follows
}

// charge charges a cost, which those beneath a node have allowed since since, to the node
// and those above it. It returns since when all of them have allowed it.
//
// The assured rate: a class pays from it while it is within that rate, and not while it
// borrows. To wait for siblings, or for its own limit, is not idleness: the class has been
// ready since those beneath it allowed the item. They have gaps of their own, which end
// with the turn of an item that was borrowed. The slack before that is not idleness
// either; else what falls due in between would be lost.
//
// The limit: a class has been ready since all classes on the path allowed the item. Only
// what is later than that is the lateness of a wake-up, which a limiter may make up for.
// If siblings held the item up, a leaky class of bytes makes up for its slack, which its
// promise has room for; else it would lose the time from its limit to its turn with each
// item. Gaps are never made up for.
func (d *departure) charge(n *node, since time.Time, cost *Cost) (ready time.Time) {
	units, parent := cost.in(n.kind), n.parent.Load()
	n.recover(d.now)
	ready = since
	if units > 0 && (parent != nil || n != d.from) {
		ready = earlier(later(ready, n.limiter.Next(ready, 0, units)), d.now)
		if n.assured != nil && !n.assured.Next().After(d.now) {
			n.assured.Take(earlier(since, ready.Add(-n.pace.slack)), d.now, units)
		}
	}
	own := ready
	if parent != nil {
		ready = d.charge(parent, parent.feed.allowed(own), cost)
	}
	if units > 0 {
		n.limiter.Take(later(own, ready.Add(-n.pace.slack)), d.now, units)
		n.payer = d.from
		if d.settles && n.settler != nil {
			n.leaving = d.now
		}
	}
	return ready
}

// pay charges a cost to the turns of all contenders on the path.
func (d *departure) pay(cost *Cost) {
	n := d.from
	if n.feed != nil {
		n.feed.pay(&n.queued, cost.in(n.kind))
	}
	for p := n.parent.Load(); p != nil; p = n.parent.Load() {
		p.feed.pay(&n.place, cost.in(p.kind))
		n = p
	}
}

// wantsLeft reports whether a class on the path waits for Left.
func (n *node) wantsLeft() bool {
	for ; n != nil; n = n.parent.Load() {
		if n.needsLeft.Load() {
			return true
		}
	}
	return false
}

// awaitsLeft reports whether a class on the path goes on only when the last item of this
// one has left.
func (n *node) awaitsLeft() bool {
	for x := n; x != nil; x = x.parent.Load() {
		if x.payer == n && !x.leaving.IsZero() {
			return true
		}
	}
	return false
}

// hasLeft tells each class that was charged for an item of the node that it has left. If
// another node has paid a class since, the class does not wait for this item; a parent
// that the node has got since was never charged. A nil cost is that of the last item.
func (n *node) hasLeft(now time.Time, cost *Cost) {
	for x := n; x != nil; x = x.parent.Load() {
		charged := x.payer == n && (cost == nil || cost.in(x.kind) > 0)
		if charged && x.settler != nil {
			x.left(now)
		}
	}
}

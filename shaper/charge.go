package shaper

import (
	"time"

	"shaper/unit"
)

// charges reports whether the node, or one above it, counts anything of a cost.
func (n *node) charges(cost *Cost) bool {
	for ; n != nil; n = n.parent.Load() {
		if cost.In(n.kind) > 0 {
			return true
		}
	}
	return false
}

// Covers reports whether what was charged for one item is enough for another item. It is enough if
// the other item costs no more, in each unit that the class or a class above counts and limits. It takes no lock.
func (n *node) Covers(charged, cost *Cost) bool {
	for ; n != nil; n = n.parent.Load() {
		limits := n.class.keys == nil && n.class.enforces.Load() // else it is passive
		if limits && cost.In(n.kind) > charged.In(n.kind) {
			return false
		}
	}
	return true
}

// Counts reports whether the class, or one above it, counts in a unit.
func (n *node) Counts(kind unit.Kind) bool {
	for ; n != nil; n = n.parent.Load() {
		if n.kind == kind {
			return true
		}
	}
	return false
}

// Piece returns how many bytes of a stream may be one item: the least that a class on the
// path to the root allows.
func (n *node) Piece() int64 {
	piece := n.piece.Load()
	for p := n.parent.Load(); p != nil; p = p.parent.Load() {
		piece = min(piece, p.piece.Load())
	}
	return piece
}

// passes reports whether what costs so much may leave without waiting: every class on the
// path allows it, and it overtakes nothing. If something waits for a class, an item
// overtakes it only if this class, or one above, counts the item.
//
// contested reports whether something that waits on the path may leave. If so, and if the
// item passes, the caller calls update: the charge may change whose turn it is.
func (n *node) passes(now time.Time, cost *Cost) (passes, contested bool) {
	if n.queue.Len() > 0 || n.handing.Load() {
		return false, false
	}
	for ; n != nil; n = n.parent.Load() {
		contested = contested || n.feed != nil && n.feed.contested(now, n.pace.patience)
		if units := cost.In(n.kind); units > 0 && !n.passive && (contested || n.allowedAt(now, units).After(now)) {
			return false, contested
		}
	}
	return true, contested
}

// A departure is something that leaves a class at a moment.
type departure struct {
	from    *node // the class that it leaves
	now     time.Time
	settles bool      // the caller calls Left when it has left
	over    time.Time // until when it may leave, as far as it is charged; zero: at any time
}

// charge charges a cost to a node and to those above it. since is since when those beneath
// the node have allowed the item. charge returns since when all of them have allowed it.
//
// The assured rate: a class that is within it pays from it; a class that borrows does not.
// To wait for siblings, or for its own limit, is not idleness: the class has been ready
// since those beneath it allowed the item. They have gaps of their own, which may end
// while a borrowed item has its turn. The slack before that is not idleness either: else
// the class would lose what it could have sent meanwhile.
//
// The limit: a class has been ready since all classes on the path allowed the item. Any
// time after that is the lateness of a wake-up, which a limiter may make up for. If
// siblings held the item up, a leaky class of bytes makes up for its slack, which its
// promise has room for. Else it would lose, with each item, the time from its limit to its
// turn. Nothing makes up for a gap.
func (d *departure) charge(n *node, since time.Time, cost *Cost) (ready time.Time) {
	units, parent := cost.In(n.kind), n.parent.Load()
	n.regain(d.now)
	ready = since
	if units > 0 && (parent != nil || n != d.from) {
		if ready = earlier(ready, d.now); ready.Before(d.now) { // else all of them have just been asked
			ready = earlier(later(ready, n.limiter.Next(ready, 0, units)), d.now)
		}
		if n.assured != nil && !n.assured.Next().After(d.now) {
			n.assured.Take(earlier(since, ready.Add(-n.pace.slack)), d.now, units)
		}
	}
	own := ready
	if parent != nil {
		ready = d.charge(parent, parent.feed.readyFrom(own), cost)
	}
	if units > 0 {
		n.limiter.Take(later(own, ready.Add(-n.pace.slack)), d.now, units)
		if n.backed != nil {
			d.over = earlierKnown(d.over, n.backed.over())
		}
		n.payer = d.from
		if d.settles && n.alone {
			n.leavingSince = d.now
		}
	}
	return ready
}

// pay charges a cost to the turns of the contenders on the path.
func (d *departure) pay(cost *Cost) {
	n := d.from
	if n.feed != nil {
		n.feed.pay(&n.ownQueue, cost.In(n.kind))
	}
	for p := n.parent.Load(); p != nil; p = n.parent.Load() {
		p.feed.pay(&n.asChild, cost.In(p.kind))
		n = p
	}
}

// pathNeedsLeft reports whether a class on the path has to know when an item has left. It
// needs no lock.
func (n *node) pathNeedsLeft() bool {
	for ; n != nil; n = n.parent.Load() {
		if n.needsLeft.Load() {
			return true
		}
	}
	return false
}

// isAwaited reports whether a class on the path goes on only when the last item of this
// node, or of one beneath it, has left.
func (n *node) isAwaited() bool {
	for x := n; x != nil; x = x.parent.Load() {
		if !x.leavingSince.IsZero() && x.payer.isBeneath(n) {
			return true
		}
	}
	return false
}

// settlePath tells each class that was charged for an item of the node at the time then that
// the item has left at the time at; now is that of the tree. Of classes out of which items leave alone, it skips those that an item
// of another node has paid since, and parents that the node has got since.
func (n *node) settlePath(now, at, then time.Time, cost *Cost) {
	for x := n; x != nil; x = x.parent.Load() {
		units := cost.In(x.kind)
		if units > 0 && x.settler != nil && (x.payer == n || !x.alone) {
			x.settle(now, at, then, units)
		}
	}
}

package shaper

import (
	"time"

	"shaper/limit"
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

// passes reports whether what costs so much may leave without waiting: every class on
// the path allows it, and it overtakes nobody. Those who wait for a class are not
// overtaken by what neither that class nor one above it counts. contested says that some
// of them may send, and compete for a class that does not limit itself: what is charged
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

// An outgoing is what leaves a class at a moment.
type outgoing struct {
	leaf    *node // from whose queue
	now     time.Time
	settles bool // Left follows
}

// charge charges what leaves, and which those beneath the node have allowed since since,
// to the node and those above it. It returns since when all of them have allowed it.
//
// A class pays from its assured rate if it is within that, and not if it borrows. What
// its siblings and its own limit hold up is no idleness, so for that it has been ready
// since those beneath it allowed it. They had gaps of their own, which end with the turn
// of an item that was borrowed, and of which the slack is no idleness either: what falls
// due in between would be lost.
//
// For a limit it has been ready since the last of them all allowed it: only what is later
// than that is the lateness of a wake-up, which a limiter may make up for. Of what
// siblings hold up a leaky class of bytes catches up its slack, which its promise has
// room for; else the time from its limit to its turn would be lost with each item. Gaps
// are never made up for.
func (n *node) charge(d *outgoing, since time.Time, cost *Cost) (ready time.Time) {
	units, parent := cost.in(n.kind), n.parent.Load()
	n.recover(d.now)
	ready = since
	if units > 0 && (parent != nil || n != d.leaf) {
		ready = earlier(later(ready, n.limiter.Next(ready, 0, units)), d.now)
		if n.assured != nil && !n.assured.Next().After(d.now) {
			n.assured.Take(earlier(since, ready.Add(-n.pace.slack)), d.now, units)
		}
	}
	own := ready
	if parent != nil {
		ready = parent.charge(d, parent.feed.allowed(own), cost)
	}
	if units > 0 {
		n.limiter.Take(later(own, ready.Add(-n.pace.slack)), d.now, units)
		n.from = d.leaf
		if d.settles && n.settler != nil {
			n.leaving = d.now
		}
	}
	return ready
}

// pay charges an item to the turns of all who had one for it to leave.
func (n *node) pay(cost *Cost) {
	if n.feed != nil {
		n.feed.pay(&n.own, cost.in(n.kind))
	}
	for p := n.parent.Load(); p != nil; p = n.parent.Load() {
		p.feed.pay(&n.place, cost.in(p.kind))
		n = p
	}
}

// wantsLeft reports whether a class on the path waits for Left.
func (n *node) wantsLeft() bool {
	for ; n != nil; n = n.parent.Load() {
		if n.settles.Load() {
			return true
		}
	}
	return false
}

// awaitsLeft reports whether a class on the path goes on only when the last item of this
// one has left.
func (n *node) awaitsLeft() bool {
	for x := n; x != nil; x = x.parent.Load() {
		if x.from == n && !x.leaving.IsZero() {
			return true
		}
	}
	return false
}

// hasLeft tells every class that was charged for an item that it has left. Those are
// among the ones that charged an item of this class last: one that another class has paid
// since has not waited for this one, or is a parent that it did not have. A nil cost is
// that of the last item.
func (n *node) hasLeft(now time.Time, cost *Cost) {
	for x := n; x != nil; x = x.parent.Load() {
		charged := x.from == n && (cost == nil || cost.in(x.kind) > 0)
		if charged && x.settler != nil {
			x.left(now)
		}
	}
}

// expects estimates when an item leaves that enters the class now, for max_wait and
// Drain.
//
// It leaves no sooner than what waits before it in its own class has left at that limit,
// and no sooner than each class above allows anything. Above that it is the sooner of
// two: when what waits before it has left at the assured rate, which the class gets
// whatever the others do; and when each class on the path has sent all that waits in it
// and its children. While one of them pauses, all that begins when it goes on.
func (n *node) expects(now time.Time, cost *Cost) time.Time {
	resumed := n.resumes(now)
	now = later(now, resumed)
	first := n.estimates(now, n.owed, cost.in(n.kind))
	last := first
	for x := n; x != nil; x = x.parent.Load() {
		first = later(first, x.estimates(now, 0, cost.in(x.kind)))
		last = later(last, x.estimates(now, x.beneath.in(x.kind), cost.in(x.kind)))
	}
	return later(later(first, resumed), earlier(last, n.assures(now)))
}

// resumes returns until when a class on the path pauses. It brings the pace of each of
// them up to date.
func (n *node) resumes(now time.Time) (until time.Time) {
	for ; n != nil; n = n.parent.Load() {
		n.recover(now)
		until = later(until, n.pauses())
	}
	return until
}

// assures returns when what waits in the queue has left at the assured rate.
func (n *node) assures(now time.Time) time.Time {
	switch {
	case n.feed != nil: // its own queue is assured of nothing
		return limit.Never
	case n.assured == nil:
		return now
	}
	return n.assured.After(now, n.owed)
}

// retry returns when what costs so much, and was refused at now, will find room if
// nothing else comes before it: the first that waits has left, and the rest leaves within
// maxWait, if that is not 0. Like max_wait it goes by an estimate.
func (n *node) retry(now time.Time, cost *Cost, maxWait time.Duration) time.Time {
	at := now
	if maxWait > 0 {
		expected := n.expects(now, cost)
		if expected == limit.Never {
			return limit.Never
		}
		at = later(at, expected.Add(-maxWait))
	}
	if front := n.front(); front != nil && !n.queue.HasRoom(int(cost.Packets), cost.Bytes) {
		for x := n; x != nil; x = x.parent.Load() {
			at = later(at, x.paces(now, front.Cost.in(x.kind)))
		}
	}
	return at
}

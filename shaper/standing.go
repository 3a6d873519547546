package shaper

import (
	"time"

	"shaper/limit"
)

// A standing is what heldUntil says of classes at one moment, so that many forecasts ask each once.
type standing map[heldIn]still

type heldIn struct {
	node  *node
	until time.Time
}

// still is what waits in a class and beneath it, and cannot leave before a time.
type still struct {
	sum
	sooner sum       // the part of it that goes on a little before that time
	from   time.Time // when the first of it goes on
}

// add adds what waits in a class that goes on at a time.
func (s *still) add(n *node, at, until time.Time) {
	s.sum.add(&n.waitingCost)
	if at.Before(until) {
		s.sooner.add(&n.waitingCost)
		s.from = earlier(s.from, at)
	}
}

// in returns what n.heldUntil does. Buckets and their groups are many, and each is asked once.
func (h standing) in(n *node, now, until time.Time) still {
	if h == nil || n.class.owner().bucketOf != nil {
		return n.heldUntil(now, until)
	}
	all, known := h[heldIn{n, until}]
	if !known {
		all = n.heldUntil(now, until)
		h[heldIn{n, until}] = all
	}
	return all
}

// mostHeld bounds how many classes and buckets heldUntil looks at: the tree is locked meanwhile.
const mostHeld = 4 * mostLooks

// heldUntil returns what waits here and cannot leave before a time, because a class pauses or is closed until then. Of contenders
// of a kind it looks at mostLooks, and at mostHeld in all.
func (n *node) heldUntil(now, until time.Time) still {
	all := still{from: until}
	for x := n; x != nil; x = x.parent.Load() {
		if at, held := x.isHeldUntil(now, until, n); held {
			all.add(n, at, until)
			return all
		}
	}
	looks := mostHeld
	n.heldBeneath(now, until, &all, &looks)
	return all
}

// heldBeneath is heldUntil of what waits beneath a class that does not stand still. It looks at all children before it
// looks beneath any of them.
func (n *node) heldBeneath(now, until time.Time, all *still, looks *int) {
	if n.waiting == 0 || n.feed == nil {
		return
	}
	for child := range n.feed.some {
		if *looks--; *looks < 0 {
			return
		}
		if at, held := child.isHeldUntil(now, until, child); held {
			all.add(child, at, until)
		}
	}
	for child := range n.feed.some {
		if _, held := child.isHeldUntil(now, until, child); *looks > 0 && !held {
			child.heldBeneath(now, until, all, looks)
		}
	}
}

// Several classes that each hear a refusal pause until moments that differ a little. Two of them compete if one goes on at
// most so much sooner or later than the other.
const (
	littleSooner = 5 * time.Second
	littleLater  = time.Second
)

// isHeldUntil returns when the class goes on that pauses at now or is closed, and whether that is at a time, or a little sooner
// or later. What stands still for longer does not compete with what goes on. If the class closes later, what waits in a class of it,
// or in itself, stands still if it cannot leave before.
func (n *node) isHeldUntil(now, until time.Time, of *node) (at time.Time, held bool) {
	near := func(at time.Time) bool {
		late := at.Sub(until)
		return at.After(now) && -littleSooner <= late && late <= littleLater
	}
	at = n.goesOn(now)
	if closed := &n.class.conf.Closed; closed.From.After(at) && near(closed.Until) && n.class.shadow == nil && !of.leavesBefore(at, closed.From) {
		at = closed.Until
	}
	return at, near(at)
}

// goesOn returns when the class goes on that pauses at now or is closed; now if it does neither.
func (n *node) goesOn(now time.Time) time.Time {
	at := later(now, n.pausedUntil())
	if closed := limit.Span(n.class.conf.Closed); n.class.shadow == nil && closed.Contains(at) {
		return closed.Until
	}
	return at
}

// leavesBefore reports whether all that waits in a class may leave from a time on before another one, by the limits on its path.
func (n *node) leavesBefore(from, before time.Time) bool {
	for x := n; x != nil; x = x.parent.Load() {
		if !x.follows(from, n.waitingCost.in(x.kind), 0).Before(before) {
			return false
		}
	}
	return true
}

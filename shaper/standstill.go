package shaper

import (
	"time"

	"shaper/limit"
)

// A standstill lasts from now until its end, when classes go on that pause or are closed. It says what waits in a class and cannot
// leave before the end. The caller holds the lock of the tree.
type standstill struct{ now, until time.Time }

// standstills remember what standstill.in says of classes at one moment, so that many forecasts ask each once. Nil remembers nothing.
type standstills map[heldIn]still

type heldIn struct {
	node  *node
	until time.Time
}

// still is what waits in a class and beneath it, and cannot leave before the end of a standstill.
type still struct {
	sum
	sooner sum       // the part of it that goes on a little before the end
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

// in returns what standstill.in does. It does not remember buckets and their groups: they are many, and each is asked once.
func (h standstills) in(n *node, now, until time.Time) still {
	if h == nil || n.class.owner.bucketOf != nil {
		return standstill{now, until}.in(n)
	}
	all, known := h[heldIn{n, until}]
	if !known {
		all = standstill{now, until}.in(n)
		h[heldIn{n, until}] = all
	}
	return all
}

// mostHeld bounds how many classes and buckets a standstill looks at: the tree is locked meanwhile.
const mostHeld = 4 * mostLooks

// in returns what waits in a class and beneath it, and cannot leave before the end, because a class pauses or is closed until
// then. Of contenders of a kind it looks at mostLooks, and at mostHeld in all.
func (s standstill) in(n *node) still {
	all := still{from: s.until}
	for x := n; x != nil; x = x.parent.Load() {
		if at, held := s.holds(x, n); held {
			all.add(n, at, s.until)
			return all
		}
	}
	looks := mostHeld
	s.addBeneath(n, &all, &looks)
	return all
}

// addBeneath is in for what waits beneath a class that does not stand still. It looks at all children before it
// looks beneath any of them.
func (s standstill) addBeneath(n *node, all *still, looks *int) {
	if n.waiting == 0 || n.feed == nil {
		return
	}
	for child := range n.feed.some {
		if *looks--; *looks < 0 {
			return
		}
		if at, held := s.holds(child, child); held {
			all.add(child, at, s.until)
		}
	}
	for child := range n.feed.some {
		if _, held := s.holds(child, child); *looks > 0 && !held {
			s.addBeneath(child, all, looks)
		}
	}
}

// holds returns when the class n goes on, and whether it stands still until the end. of is n, or a class beneath it. What stands
// still for longer does not compete with what goes on. If n closes later, what waits in of stands still if it cannot leave before.
func (s standstill) holds(n, of *node) (at time.Time, held bool) {
	at = n.goesOn(s.now)
	if closed := &n.class.conf.Closed; closed.From.After(at) && s.endsAt(closed.Until) && n.class.shadow == nil && !of.leavesBefore(at, closed.From) {
		at = closed.Until
	}
	return at, s.endsAt(at)
}

// Several classes that each hear a refusal pause until moments that differ a little. Two of them compete if one goes on at
// most so much sooner or later than the other.
const (
	littleSooner = 5 * time.Second
	littleLater  = time.Second
)

// endsAt reports whether what goes on at a time stands still and goes on at the end, or a little sooner or later.
func (s standstill) endsAt(at time.Time) bool {
	late := at.Sub(s.until)
	return at.After(s.now) && -littleSooner <= late && late <= littleLater
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

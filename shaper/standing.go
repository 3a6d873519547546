package shaper

import "time"

// standing is what heldUntil says of classes at one moment, so that many forecasts ask each once.
type standing map[heldIn]sum

type heldIn struct {
	node  *node
	until time.Time
}

// in returns what n.heldUntil does. Buckets and their groups are many, and each is asked once.
func (h standing) in(n *node, now, until time.Time) sum {
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

// allWaiting returns what waits in a class and beneath it.
func (n *node) allWaiting() sum { return n.waitingCost }

// mostHeld bounds how many classes and buckets heldUntil looks at: the tree is locked meanwhile.
const mostHeld = 4 * mostLooks

// heldUntil returns what waits here and cannot leave before a time, because a class pauses or is closed until then. Of contenders
// of a kind it looks at mostLooks, and at mostHeld in all.
func (n *node) heldUntil(now, until time.Time) (all sum) {
	for x := n; x != nil; x = x.parent.Load() {
		if x.isHeldUntil(now, until) {
			return n.waitingCost
		}
	}
	looks := mostHeld
	return n.heldBeneath(now, until, &looks)
}

// heldBeneath is heldUntil of what waits beneath a class that does not stand still. It looks at all children before what is
// beneath them.
func (n *node) heldBeneath(now, until time.Time, looks *int) (all sum) {
	if n.waiting == 0 || n.feed == nil {
		return all
	}
	for child := range n.feed.some {
		if *looks--; *looks < 0 {
			return all
		}
		if child.isHeldUntil(now, until) {
			all.add(&child.waitingCost)
		}
	}
	for child := range n.feed.some {
		if *looks > 0 && !child.isHeldUntil(now, until) {
			held := child.heldBeneath(now, until, looks)
			all.add(&held)
		}
	}
	return all
}

// Classes that hear a refusal each pause until moments that differ a little. One that goes on at most so much sooner or later
// than another competes with it.
const (
	littleSooner = 5 * time.Second
	littleLater  = time.Second
)

// isHeldUntil reports whether the class pauses at now or is closed, and goes on at a time, or a little sooner or later. What stands
// still for longer does not compete with what goes on.
func (n *node) isHeldUntil(now, until time.Time) bool {
	ends := func(at time.Time) bool {
		late := at.Sub(until)
		return at.After(now) && -littleSooner <= late && late <= littleLater
	}
	return n.class.shadow == nil && ends(n.class.conf.Closed.Until) || ends(n.pausedUntil())
}

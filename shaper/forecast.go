package shaper

import (
	"time"

	"shaper/limit"
)

// A forecast estimates when what waits at a node, or comes to it at now, leaves; for
// max_wait, Drain and Retry. It brings the pace of every class on the path up to date.
type forecast struct {
	node *node
	now  time.Time
}

// leaves estimates when an item leaves that enters the class now.
//
// It leaves no sooner than what waits before it in its own class has left at that limit,
// and no sooner than each class above allows anything. Above that it is the sooner of
// two: when what waits before it has left at the assured rate, which the class gets
// whatever the others do; and when each class on the path has sent all that waits in it
// and its children. While one of them pauses, all that begins when it goes on.
func (f forecast) leaves(cost *Cost) time.Time {
	n, resumed := f.node, f.resumes()
	now := later(f.now, resumed)
	first := n.estimates(now, n.queueCost, cost.in(n.kind))
	last := first
	for x := n; x != nil; x = x.parent.Load() {
		first = later(first, x.estimates(now, 0, cost.in(x.kind)))
		last = later(last, x.estimates(now, x.beneath.in(x.kind), cost.in(x.kind)))
	}
	return later(later(first, resumed), earlier(last, f.assured(now)))
}

// resumes returns until when a class on the path pauses.
func (f forecast) resumes() (until time.Time) {
	for n := f.node; n != nil; n = n.parent.Load() {
		n.recover(f.now)
		until = later(until, n.pauses())
	}
	return until
}

// assured returns when what waits in the queue has left at the assured rate, from now on.
func (f forecast) assured(now time.Time) time.Time {
	switch n := f.node; {
	case n.feed != nil: // its own queue is assured of nothing
		return limit.Never
	case n.assured == nil:
		return now
	default:
		return n.assured.After(now, n.queueCost)
	}
}

// room estimates when what costs so much, and was refused now, finds room if nothing else
// comes before it: the first that waits has left, and the rest leaves within maxWait; 0
// is no bound.
func (f forecast) room(cost *Cost, maxWait time.Duration) time.Time {
	n, at := f.node, f.now
	if maxWait > 0 {
		leaves := f.leaves(cost)
		if leaves == limit.Never {
			return limit.Never
		}
		at = later(at, leaves.Add(-maxWait))
	}
	if front := n.front(); front != nil && !n.queue.HasRoom(int(cost.Packets), cost.Bytes) {
		for x := n; x != nil; x = x.parent.Load() {
			at = later(at, x.paces(f.now, front.Cost.in(x.kind)))
		}
	}
	return at
}

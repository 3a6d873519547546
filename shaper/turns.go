package shaper

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A turn is that of an item of a bucket among the other buckets of its class.
type turn struct {
	band   int
	bucket *Class // nil if the key of the item has none yet
	before sum    // what waits before the item in its bucket
}

// afterTurns returns when an item leaves the classes above the class k, if k has them to itself.
func (k *keys) afterTurns(now time.Time, of turn, cost *Cost) (at time.Time) {
	others, items := k.class.waitingCost, k.class.waiting
	if of.bucket != nil {
		own := of.bucket.waitingCost.negative()
		others.add(&own)
		items -= of.bucket.waiting
	}
	total := max(others.in(k.class.kind), items) // as in line.depth
	ahead := min(k.turnsBefore(now, &of, items, total), total)
	child := &k.class.node
	for x := child.parent.Load(); x != nil; x = x.parent.Load() {
		n := of.before.in(x.kind) + portion(others.in(x.kind), ahead, total)
		n += x.lettingBefore(now, child, n+cost.In(x.kind))
		at = later(at, x.follows(now, n, cost.In(x.kind)))
		child = x
	}
	return at
}

// lettingBefore returns what the siblings of a child let leave before n units of the child, which are within its assured rate, have
// left: what those of a better priority are assured meanwhile, and those of the same priority at most as much as their weight gives
// them. None lets more leave than it has. What stands still lets nothing leave.
func (n *node) lettingBefore(now time.Time, child *node, units int64) int64 {
	rate, all := n.pacedRate().PerSecond(), 0.
	rest := rate
	for s := range n.feed.some {
		if n.isBefore(now, s, child) {
			rest -= s.assuredOf(n, rate)
		}
	}
	for s := range n.feed.some {
		if !n.isBefore(now, s, child) {
			continue
		}
		most := float64(s.waitingCost.in(n.kind))
		if rest > 0 {
			most = min(most, float64(units)*s.assuredOf(n, rate)/rest)
		}
		if s.asChild.priority == child.asChild.priority {
			most = min(most, float64(units)*float64(s.asChild.weight)/float64(child.asChild.weight))
		}
		all += most
	}
	return int64(all)
}

// siblingsBefore returns what the siblings of a child let leave before so many units of the child, if the child gets less
// than its siblings are assured together. Siblings of a better priority let all leave that waits in them, and siblings of
// the same priority as much as the weights say.
func (n *node) siblingsBefore(now time.Time, child *node, units int64) (all sum) {
	for s := range n.feed.some {
		if !n.isBefore(now, s, child) {
			continue
		}
		before := s.waitingCost
		if total := before.in(n.kind); s.asChild.priority == child.asChild.priority {
			before = before.part(min(units*s.asChild.weight/child.asChild.weight, total), total)
		}
		all.add(&before)
	}
	return all
}

// isBefore reports whether a child has turns before another one that is within its assured rate.
func (n *node) isBefore(now time.Time, s, child *node) bool {
	return s != child && s.asChild.priority <= child.asChild.priority && s.waiting > 0 && !s.goesOn(now).After(now)
}

// assuredOf returns what the class is assured in a second of a class above that sends at a rate. The result is in the unit
// of the class above, and assumes that what leaves costs the same as what waits. A class that does not borrow leaves its
// gap idle until the class above is free.
func (n *node) assuredOf(above *node, rate float64) float64 {
	own, buckets, borrows := n.pace.assured.PerSecond(), 1, n.pace.borrows
	if k := n.class.keys; k != nil {
		buckets, borrows = k.waiting.Len(), k.pace.borrows
	}
	own *= float64(n.waitingCost.in(above.kind)) / float64(max(n.waitingCost.in(n.kind), 1))
	if !borrows && n.pace.atOnce == 1 {
		own = rate / math.Ceil(rate/own)
	}
	return own * float64(buckets)
}

// turnsBefore returns what the other buckets let leave before a turn, if so many items wait in them that cost total
// together.
//
// Each of them lets as much leave as waits before the item. One that has a seat in the band of the turn lets more
// leave: as much as the turn of the bucket comes after the present one, and about an item at least. None lets
// more leave than it has. While some recipients have quiet hours, it is not known in how many buckets all that
// waits is for these, so only the part counts that has a seat.
func (k *keys) turnsBefore(now time.Time, of *turn, items, total int64) int64 {
	if items == 0 {
		return 0
	}
	f, busy, priority, contends := k.class.feed, int64(k.waiting.Len()), k.conf.Priority, (*contender)(nil)
	ready := f.seated(of.band)
	if b := of.bucket; b != nil {
		priority, contends = b.asChild.priority, &b.asChild
		if b.waiting > 0 {
			busy--
		}
		if contends.isSeated(of.band) {
			ready--
		}
		f.depths.count(b.depth, -1)
		defer f.depths.count(b.depth, 1)
	}
	ready = min(ready, busy)
	before, more := of.before.in(k.class.kind), max(f.lag(of.band, priority, contends), (total+items-1)/items)
	all := f.depths.upTo(before, total)
	rest := f.depths.upTo(before+more, total) - all
	if k.isQuiet(now) {
		all = portion(all, ready, busy)
	}
	return all + portion(rest, ready, busy)
}

// portion returns n*a/b, where a is at most b: all of n if they are equal, even if both are 0.
func portion(n, a, b int64) int64 {
	if a == b {
		return n
	}
	hi, lo := bits.Mul64(uint64(n), uint64(a))
	q, _ := bits.Div64(hi, lo, uint64(b))
	return int64(q)
}

// part returns a/b of a sum, as portion does.
func (s sum) part(a, b int64) sum {
	return sum{portion(s.bytes, a, b), portion(s.packets, a, b), portion(s.messages, a, b), portion(s.connections, a, b), portion(s.tokens, a, b)}
}

// competes reports whether the class is a bucket that takes turns with others of its class: one that was given up has a tree of its
// own, and one beneath a bucket takes turns with buckets of other classes.
func (c *Class) competes() bool {
	return c.bucketOf != nil && c.bucketOf.above == nil && c.parent.Load() != nil
}

// comesFirst reports whether the next item of a contender certainly has its turn before all others that cost something in a unit.
// What stands still has no turn.
func (f *feed) comesFirst(now time.Time, k *contender, kind unit.Kind) bool {
	n := k.node
	if !k.isQueue {
		n = n.parent.Load()
	}
	if front := n.front(); front != nil && !k.isQueue && front.Cost.In(kind) > 0 && !k.outranks(now, &n.ownQueue) {
		return false
	}
	for child := range f.some {
		if o := &child.asChild; o != k && child.waitingCost.in(kind) > 0 && !child.goesOn(now).After(now) && !k.outranks(now, o) {
			return false
		}
	}
	return true
}

// outranks reports whether a contender goes before another one by the rule, whoever had the last turn. The other one comes within its
// assured rate while it waits.
func (k *contender) outranks(now time.Time, o *contender) bool {
	if within := !k.assured().After(now); within != (o.assured() != limit.Never) {
		return within
	}
	return k.priority < o.priority
}

// isQuiet reports whether some recipients have quiet hours at now.
func (k *keys) isQuiet(now time.Time) bool {
	return slices.ContainsFunc(k.conf.Quieted, func(g policy.QuietGroup) bool { return limit.Span(g.Closed).Contains(now) })
}

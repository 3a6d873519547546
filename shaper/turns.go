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

// A turn is that of an item of a bucket among the other buckets of its class. It estimates when the item has left the classes
// above. The caller holds the lock of the tree.
type turn struct {
	keys   *keys // whose buckets take turns
	band   int
	bucket *Class // nil if the key of the item has none yet
	before sum    // what waits before the item in its bucket
}

// leaves returns when the limits of the classes above that of the buckets let the item leave. Before it leaves what comes first in
// the other buckets, and what the rivals of each class on the path let leave.
func (t *turn) leaves(now time.Time, cost *Cost) (at time.Time) {
	child := &t.keys.class.node
	others := t.others(now, t.before.in(child.kind))
	for x := child.parent.Load(); x != nil; x = x.parent.Load() {
		n := t.before.in(x.kind) + others.in(x.kind)
		n += contest{now, x, child}.letting(n + cost.In(x.kind))
		at = later(at, x.follows(now, n, cost.In(x.kind)))
		child = x
	}
	return at
}

// others returns what the other buckets let leave before the turn, if so much is before the item in its bucket.
func (t *turn) others(now time.Time, before int64) sum {
	c := t.keys.class
	all, items := c.waitingCost, c.waiting
	if t.bucket != nil {
		own := t.bucket.waitingCost.negative()
		all.add(&own)
		items -= t.bucket.waiting
	}
	total := max(all.in(c.kind), items) // as in line.depth
	return all.part(min(t.ahead(now, before, items, total), total), total)
}

// A contest is that of a child of a class with its rivals: the siblings that have turns before it, although the child is within
// its assured rate. A rival has no worse priority, has something to send, and does not stand still. All results are estimates,
// and no rival lets more leave than waits in it. The caller holds the lock of the tree.
type contest struct {
	now   time.Time
	class *node // for which they compete
	child *node
}

// rivals yields the rivals of the child that feed.some yields: it does not look at all of many.
func (c contest) rivals(yield func(*node) bool) {
	for s := range c.class.feed.some {
		isBefore := s != c.child && s.asChild.priority <= c.child.asChild.priority && s.waiting > 0
		if isBefore && !s.goesOn(c.now).After(c.now) && !yield(s) {
			return
		}
	}
}

// letting returns what the rivals let leave before so many units of the child have left, if the class has enough for what all are
// assured. Each lets leave what it is assured meanwhile, and one of the same priority at most as much as its weight gives it.
func (c contest) letting(units int64) int64 {
	rate, all := c.class.pacedRate().PerSecond(), 0.
	rest := rate
	for s := range c.rivals {
		rest -= c.assured(s, rate)
	}
	for s := range c.rivals {
		most := float64(s.waitingCost.in(c.class.kind))
		if rest > 0 {
			most = min(most, float64(units)*c.assured(s, rate)/rest)
		}
		if s.asChild.priority == c.child.asChild.priority {
			most = min(most, float64(units)*float64(s.asChild.weight)/float64(c.child.asChild.weight))
		}
		all += most
	}
	return int64(all)
}

// before is letting if the class has less than all are assured together. Rivals of a better priority let all leave that waits in
// them, and rivals of the same priority as much as the weights say.
func (c contest) before(units int64) (all sum) {
	for s := range c.rivals {
		before := s.waitingCost
		if total := before.in(c.class.kind); s.asChild.priority == c.child.asChild.priority {
			before = before.part(min(units*s.asChild.weight/c.child.asChild.weight, total), total)
		}
		all.add(&before)
	}
	return all
}

// assured returns what a child is assured in a second if the class sends at a rate. The result is in the unit of the
// class, and assumes that what leaves costs the same as what waits. A child that does not borrow leaves its gap idle until
// the class is free.
func (c contest) assured(s *node, rate float64) float64 {
	own := s.pace.assured.PerSecond() * float64(s.waitingCost.in(c.class.kind)) / float64(max(s.waitingCost.in(s.kind), 1))
	if !mayBorrow(s) && s.pace.atOnce == 1 {
		own = rate / math.Ceil(rate/own)
	}
	return own * bucketsOf(s)
}

// bucketsOf returns in how many buckets of a class something waits; 1 if it has no buckets.
func bucketsOf(n *node) float64 {
	if k := n.class.keys; k != nil {
		return float64(k.waiting.Len())
	}
	return 1
}

// mayBorrow reports whether a child may borrow, or its buckets may.
func mayBorrow(s *node) bool {
	if k := s.class.keys; k != nil {
		return k.pace.borrows
	}
	return s.pace.borrows
}

// ahead is others in the unit of the class, if so many items wait in the other buckets that cost total together.
//
// Each of them lets as much leave as waits before the item. One that has a seat in the band of the turn lets more
// leave: as much as the turn of the bucket comes after the present one, and about an item at least. None lets
// more leave than it has. While some recipients have quiet hours, it is not known in how many buckets all that
// waits is for these, so only the part counts that has a seat.
func (t *turn) ahead(now time.Time, before, items, total int64) int64 {
	if items == 0 {
		return 0
	}
	k := t.keys
	f, busy, priority, contends := k.class.feed, int64(k.waiting.Len()), k.conf.Priority, (*contender)(nil)
	ready := f.seated(t.band)
	if b := t.bucket; b != nil {
		priority, contends = b.asChild.priority, &b.asChild
		if b.waiting > 0 {
			busy--
		}
		if contends.isSeated(t.band) {
			ready--
		}
		f.depths.count(b.depth, -1)
		defer f.depths.count(b.depth, 1)
	}
	ready = min(ready, busy)
	more := max(f.lag(t.band, priority, contends), (total+items-1)/items)
	all := f.depths.upTo(before, total)
	rest := f.depths.upTo(before+more, total) - all
	if anyIsQuiet(now, k.conf.Quieted) {
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

// takesTurns reports whether it is a bucket that takes turns with others of its class: one beneath a bucket takes turns with
// buckets of other classes.
func (b *bucketOnly) takesTurns() bool { return b.bucketOf != nil && b.bucketOf.above == nil }

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

// anyIsQuiet reports whether a group of recipients has quiet hours at now.
func anyIsQuiet(now time.Time, all []policy.QuietGroup) bool {
	return slices.ContainsFunc(all, func(g policy.QuietGroup) bool { return limit.Span(g.Closed).Contains(now) })
}

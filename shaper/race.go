package shaper

import (
	"math"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// A race is that of what waits in a contender with all that competes with it for the classes on its path. It says when the last of it
// leaves if each of these classes divides what it sends by the rule: by assured rates, priorities and weights. All results are
// estimates, and nobody lets more leave than waits in it.
//
// A race looks at the runners once, so it costs little to ask it about several times. The caller holds the lock of the tree.
type race struct {
	begins  time.Time
	first   *contender
	units   int64 // how much leaves the contender before the item that is asked about, in the unit of its class
	tail    tail  // of the item, if there is one
	runners [mostRunners]runner
	count   int
	looks   int64 // at how many beneath the runners it has looked
	crowded bool  // more compete than it looks at
}

// mostRunners bounds how many a race looks at: the tree is locked meanwhile.
const mostRunners = 32

// A runner is one that competes with the first contender, or with a class above that. All numbers are in the unit of the class for
// which it competes.
type runner struct {
	class   *node   // for which it competes
	waits   float64 // what waits in it
	limits  flow    // what its limits let leave
	beneath flow    // what those of its children let leave
	assured flow    // what it sends although others wait
	share   float64 // what it borrows for each unit that its rival borrows
}

// A flow lets nothing leave before a time, then some at once, and then some in each second. Times are seconds after the race begins.
type flow struct{ from, atOnce, perSecond float64 }

// unlimited is the flow of what has no limit.
var unlimited = flow{atOnce: math.Inf(1)}

// by returns what has left by a time.
func (f *flow) by(t float64) float64 {
	if t < f.from {
		return 0
	}
	return f.atOnce + f.perSecond*(t-f.from)
}

// by returns what the runner lets leave by a time, if its rival borrows so much.
func (r *runner) by(t, borrowed float64) float64 {
	most := r.assured.by(t)
	if borrowed > 0 {
		most += r.share * borrowed
	}
	return min(most, r.limits.by(t), r.beneath.by(t), r.waits)
}

// look makes those run who compete for the classes on the path, unless they are too many. waiting returns what waits in a class when
// the race begins. The buckets of one class do not run: turns says what they let leave.
func (r *race) look(waiting func(*node) still) {
	most := int64(0)
	for x := r.first.contestedBy(); x != nil; x = x.parent.Load() {
		most += x.feed.waiting()
	}
	r.crowded = most > mostRunners
	for k := r.first; !r.crowded && k.contestedBy() != nil; k = &k.contestedBy().asChild {
		if x := k.contestedBy(); x.class.keys == nil {
			r.lookAt(x, k, waiting)
		}
	}
}

// lookAt is look for the class x, for which k competes.
func (r *race) lookAt(x *node, k *contender, waiting func(*node) still) {
	if own := &x.ownQueue; own != k && x.queueCost > 0 {
		r.add(runner{class: x, waits: float64(x.queueCost), limits: unlimited, beneath: unlimited, share: own.shareBeside(k)})
	}
	rate := x.pacedRate().PerSecond()
	for s := range x.feed.some {
		if &s.asChild == k || s.waiting == 0 {
			continue
		}
		all := waiting(s)
		r.add(runner{x, float64(all.in(x.kind)), r.limitsOf(x, s), r.beneath(x, s), r.assuredOf(x, s, rate), s.asChild.shareBeside(k)})
	}
}

func (r *race) add(one runner) {
	if r.crowded = r.count == len(r.runners); !r.crowded {
		r.runners[r.count] = one
		r.count++
	}
}

// limitsOf returns what the limits of s let leave, of which that of the class counts in its unit. Each bucket has its own. A class in
// the shadow limits nothing.
func (r *race) limitsOf(class, s *node) flow {
	if s.class.conf.Shadow {
		return unlimited
	}
	buckets := bucketsOf(s)
	return flow{
		from:      r.seconds(s.goesOn(r.begins)),
		atOnce:    buckets * inUnits(s, float64(s.pace.atOnce), class.kind),
		perSecond: buckets * inUnits(s, s.pacedRate().PerSecond(), class.kind),
	}
}

// beneath is limitsOf for the children of s together. If something else waits in s, or in many of them, it is not known.
func (r *race) beneath(class, s *node) (all flow) {
	if s.feed == nil || s.class.keys != nil || s.queueCost > 0 {
		return unlimited
	}
	if r.looks += s.feed.waiting(); r.looks > mostRunners {
		return unlimited
	}
	for child := range s.feed.some {
		if child.waiting > 0 {
			one := r.limitsOf(class, child)
			all.atOnce += one.atOnce
			all.perSecond += one.perSecond
		}
	}
	return all
}

// assuredOf returns what s sends although others wait, if the class sends at a rate: at once an item, or all that its limit has left if
// it does not borrow. Each bucket does so.
func (r *race) assuredOf(class, s *node, rate float64) flow {
	atOnce := float64(s.waitingCost.in(class.kind)) / float64(s.waiting)
	if !mayBorrow(s) && s.pace.atOnce > 1 {
		atOnce = max(atOnce, inUnits(s, r.credit(s), class.kind))
	}
	return flow{
		from:      r.seconds(later(s.goesOn(r.begins), s.asChild.assured())),
		atOnce:    bucketsOf(s) * atOnce,
		perSecond: contest{class: class}.assured(s, rate),
	}
}

// credit returns about how much the limit of a child lets leave at once: of a window that is not used up, all, and of buckets, what
// one has that is full.
func (r *race) credit(s *node) float64 {
	most := float64(s.pace.atOnce)
	switch {
	case s.class.keys != nil:
		return most
	case !s.pace.algorithm.HasWindow():
		return max(most-s.pacedRate().PerSecond()*r.seconds(s.follows(r.begins, 0, s.pace.atOnce)), 0)
	case s.follows(r.begins, 0, 1).After(r.begins):
		return 0
	}
	return most
}

// seconds returns how long after the beginning a time is.
func (r *race) seconds(at time.Time) float64 { return max(at.Sub(r.begins), 0).Seconds() }

// between returns when the item leaves: from a time on, and at the latest at another one. It halves the way between the two, in
// proportion, until it knows a moment by which the item has left, and which is late by an eighth or a millisecond at most: after eight
// halves, if the other time is in a century.
func (r *race) between(from, latest time.Time, cost *Cost) time.Time {
	at := r.leaves(latest, cost)
	if at.After(latest) {
		return latest
	}
	low, high := max(from.Sub(r.begins), time.Millisecond), latest.Sub(r.begins)
	for high-low > low/8 {
		half := time.Duration(math.Sqrt(float64(low) * float64(high)))
		if left := r.leaves(r.begins.Add(half), cost); left.Sub(r.begins) > half {
			low, from = half, r.begins.Add(half)
		} else {
			high, at = half, left
		}
	}
	return later(at, from)
}

// leaves returns when an item leaves that comes after the units, behind what the runners let leave by a time: later than that time if
// it does not leave by then. It is limit.Never if too many compete to tell.
func (r *race) leaves(by time.Time, cost *Cost) (at time.Time) {
	if r.crowded {
		return limit.Never
	}
	k, before, t, runners := r.first, float64(r.units), r.seconds(by), r.runners[:r.count]
	for x := k.contestedBy(); x != nil; x = k.contestedBy() {
		before = max(inUnits(k.node, before, x.kind), float64(r.tail.atMost(x)))
		if x.class.keys != nil {
			before += r.otherBuckets(x.class.keys, k, int64(before))
		}
		borrowed := k.borrowed(t, before+float64(cost.In(x.kind)))
		for ; len(runners) > 0 && runners[0].class == x; runners = runners[1:] {
			before += runners[0].by(t, borrowed)
		}
		at = later(at, x.follows(r.begins, int64(before), cost.In(x.kind)))
		k = &x.asChild
	}
	return at
}

// otherBuckets returns what the other buckets of a class let leave before so much of one of them. If a queue competes, the item has no
// bucket yet.
func (r *race) otherBuckets(keys *keys, k *contender, before int64) float64 {
	t := turn{keys: keys, band: assured}
	if !k.isQueue {
		t.bucket = k.node.class
	}
	if k.assured().After(r.begins) {
		t.band = borrowing
	}
	others := t.others(r.begins, before)
	return float64(others.in(keys.class.kind))
}

// borrowed returns how many of so many units a contender has to borrow, if all of them leave within t seconds.
func (k *contender) borrowed(t, units float64) float64 {
	n := k.node
	switch {
	case k.isQueue:
		return units
	case !mayBorrow(n):
		return 0
	}
	assured := bucketsOf(n) * inUnits(n, n.pace.assured.PerSecond(), n.parent.Load().kind)
	return max(units-assured*t, 0)
}

// shareBeside returns how much a contender borrows for each unit that its rival borrows. It goes before the rival if its priority is
// better, and takes turns with it by weight if the priority is the same.
func (k *contender) shareBeside(rival *contender) float64 {
	switch {
	case k.priority > rival.priority:
		return 0
	case k.priority < rival.priority:
		return math.Inf(1)
	}
	return float64(k.weight) / float64(rival.weight)
}

// inUnits returns so many units of a class as units of another kind, if what leaves costs the same as what waits. What costs nothing
// in the class is all that waits.
func inUnits(n *node, units float64, kind unit.Kind) float64 {
	if n.kind == kind {
		return units
	}
	all, own := float64(n.waitingCost.in(kind)), n.waitingCost.in(n.kind)
	if own == 0 {
		return all
	}
	return units * all / float64(own)
}

package shaper

import (
	"time"

	"shaper/limit"
)

// leavePatience is how long an item may be on its way out before a class goes
// on without it.
const leavePatience = time.Second

// allows returns when an item that costs n may leave the class, if it is the
// next; now for what costs nothing. While the class gets its rate back, it is no
// later than its next share, since the time is another from then on.
func (c *Class) allows(now time.Time, n int64) time.Time {
	if n > 0 && c.conf.InFlight > 0 && c.flying >= c.conf.InFlight && c.limits() {
		return limit.Never
	}
	at := c.paces(now, n)
	if c.throttle.less > 0 {
		at = earlier(at, c.regains())
	}
	return at
}

// paces is allows whatever is in flight, since nobody knows when that is answered. As
// far as it goes beyond the next share it is an estimate.
func (c *Class) paces(now time.Time, n int64) time.Time {
	if n == 0 {
		return now
	}
	c.recover(now)
	at := c.limiter.Next(now, 0, n)
	if c.throttle.less > 0 {
		at = c.sooner(at)
	}
	if !c.leaving.IsZero() {
		at = later(at, c.leaving.Add(leavePatience))
	}
	if !c.throttle.until.IsZero() && c.limits() {
		at = later(at, c.throttle.until)
	}
	return at
}

// ready returns when the class may send its head, the limits above it apart, or when
// it has to be looked at again. What costs nothing waits with the others where the
// class may not send.
func (c *Class) ready(now time.Time) time.Time {
	if c.place.head == nil {
		return c.changes()
	}
	at := c.allows(now, c.place.head.Cost.in(c.kind))
	if c.feed == nil || !at.After(now) {
		return at
	}
	least := int64(1)
	if c.free {
		least = 0
	}
	if small := c.allows(now, least); small.Before(at) { // such an item may have its turn before
		at = earlier(at, later(small, c.changes()))
	}
	return at
}

// changes returns when time changes what is the next beneath the class. Of those beneath
// it who may send, that is up to the one whose turn it is, all the way down; those who may
// not have alarms.
func (c *Class) changes() time.Time {
	at := limit.Never
	for c.feed != nil {
		at = earlier(at, c.feed.changes.first())
		k := c.feed.next()
		if k == nil || k.own {
			break
		}
		c = k.class
	}
	return at
}

// limits reports whether the class holds anything up itself.
func (c *Class) limits() bool { return c.keys == nil && c.shadow == nil }

// charges reports whether the class or one above it counts anything of a cost.
func (c *Class) charges(cost *Cost) bool {
	for ; c != nil; c = c.parent.Load() {
		if cost.in(c.kind) > 0 {
			return true
		}
	}
	return false
}

// passes reports whether what costs so much may leave without waiting: every
// class on the path allows it, and it overtakes nobody. Those who wait for a
// class are not overtaken by what neither that class nor one above it counts.
// contested says that some of them may send, and compete for a class that does not
// limit itself: what is charged then may change whose turn it is.
func (c *Class) passes(now time.Time, cost *Cost) (passes, contested bool) {
	if c.queue.Len() > 0 || c.handing.Load() {
		return false, false
	}
	for ; c != nil; c = c.parent.Load() {
		contested = contested || c.feed != nil && c.feed.contested(now)
		if n := cost.in(c.kind); n > 0 && c.limits() && (contested || c.allows(now, n).After(now)) {
			return false, contested
		}
	}
	return true, contested
}

// let lets an item go that has waited, or need not.
func (c *Class) let(now time.Time, it *Item) {
	c.countWait(now.Sub(it.arrived))
	if !it.Busy || it.since.IsZero() {
		it.since = it.arrived
	}
	c.charge(it, it.since, now, &it.Cost, it.Settles)
	it.charged = c
}

// charge charges what leaves at now, and whose source has had it ready since
// since, to every class on the path, and offers it to those in their shadow. it is
// what leaves, where that is an Item.
func (c *Class) charge(it *Item, since, now time.Time, cost *Cost, settles bool) {
	c.chargeUp(c, since, now, cost, settles)
	asks := it != nil && it.Asks
	if asks {
		c.countFlying(1)
	}
	var from *Source
	if it != nil && it.Patient {
		from = &it.source
	}
	for ; c != nil; c = c.parent.Load() {
		if c.shadow != nil && c.keys == nil && cost.in(c.kind) > 0 {
			c.shadow.mirror(now, *cost, from, asks && c.tracks())
		}
	}
}

// chargeUp charges an item of a leaf, which those beneath the class have allowed
// since since, to the class and those above it. It returns since when all of
// them have allowed it.
//
// A class pays from its assured rate where it is within that, and not where it
// borrows. What its siblings and its own limit hold up is no idleness, so for that
// it has been ready since those beneath it allowed it. They had gaps of their own,
// which end with the turn of an item that was borrowed, and of which the slack is
// no idleness either: what falls due in between would be lost.
//
// For a limit it has been ready since the last of them all did: only what is later
// than that is the lateness of a wake-up, which a limiter may make up for. Of what
// siblings hold up a leaky class of bytes catches up its slack, which its promise
// has room for; else the time from its limit to its turn would be lost with each
// item. Gaps are never made up for.
func (c *Class) chargeUp(leaf *Class, since, now time.Time, cost *Cost, settles bool) (ready time.Time) {
	n, parent := cost.in(c.kind), c.parent.Load()
	c.recover(now)
	ready = since
	if n > 0 && (parent != nil || c != leaf) {
		ready = earlier(later(ready, c.limiter.Next(ready, 0, n)), now)
		if c.assured != nil && !c.assured.Next().After(now) {
			c.assured.Take(earlier(since, ready.Add(-c.slack)), now, n)
		}
	}
	own := ready
	if parent != nil {
		ready = parent.chargeUp(leaf, parent.feed.allowed(own), now, cost, settles)
	}
	if n > 0 {
		c.limiter.Take(later(own, ready.Add(-c.slack)), now, n)
		c.from = leaf
		if settles && c.settler != nil {
			c.leaving = now
		}
	}
	return ready
}

// countFlying counts so many more in flight in the class and those above it.
func (c *Class) countFlying(n int) {
	for ; c != nil; c = c.parent.Load() {
		c.flying += n
	}
}

// moveFlying is countFlying for items that come with a class which gets a parent, or
// leave with it.
func (c *Class) moveFlying(now time.Time, n int) {
	if c.countFlying(n); n == 0 {
		return
	}
	for ; c != nil; c = c.parent.Load() {
		if c.tracks() {
			c.shadow.trial.moveFlying(now, n)
		}
	}
}

// pay charges an item to the turns of all who had one for it to leave.
func (c *Class) pay(cost *Cost) {
	if c.feed != nil {
		c.feed.pay(&c.own, cost.in(c.kind))
	}
	for p := c.parent.Load(); p != nil; p = c.parent.Load() {
		p.feed.pay(&c.place, cost.in(p.kind))
		c = p
	}
}

// wantsLeft reports whether Left matters to a class on the path.
func (c *Class) wantsLeft() bool {
	if c.parting.Load() {
		return true
	}
	for ; c != nil; c = c.parent.Load() {
		if c.settles.Load() {
			return true
		}
	}
	return false
}

// hasLeft tells every class that was charged for an item that it has left. Those
// are among the ones that charged an item of this class last: one that another class
// has paid since has not waited for this one, or is a parent that it did not have.
func (c *Class) hasLeft(root *Class, now time.Time, cost *Cost) {
	for x := c; x != nil; x = x.parent.Load() {
		charged := x.from == c && (cost == nil || cost.in(x.kind) > 0)
		if charged && x.settler != nil {
			x.leaving = time.Time{}
			x.settler.Left(now)
		}
	}
	c.update(now)
	root.wake(now)
	c.retire(now)
}

// expects estimates when an item leaves that enters the class now, for max_wait
// and Backlog.
//
// It leaves no sooner than what waits before it in its own class has left at
// that limit, and no sooner than each class above allows anything. Above that
// it is the sooner of two: when what waits before it has left at the assured
// rate, which the class gets whatever the others do; and when each class on the
// path has sent all that waits in it and its children. While one of them pauses,
// all that begins when it goes on.
func (c *Class) expects(now time.Time, cost *Cost) time.Time {
	resumed := c.paused(now)
	now = later(now, resumed)
	first := c.estimates(now, c.backlog, cost.in(c.kind))
	last := first
	for x := c; x != nil; x = x.parent.Load() {
		first = later(first, x.estimates(now, 0, cost.in(x.kind)))
		last = later(last, x.estimates(now, x.beneath.in(x.kind), cost.in(x.kind)))
	}
	return later(later(first, resumed), earlier(last, c.assures(now)))
}

// estimates returns when an item that costs n leaves the class, whose pace is up to
// date, if ahead units leave before it.
func (c *Class) estimates(now time.Time, ahead, n int64) time.Time {
	at := c.limiter.Next(now, ahead, n)
	if c.throttle.less > 0 {
		return c.sooner(at)
	}
	return at
}

// paused returns until when a class on the path has nothing leave, since its provider
// has said so. It brings the pace of each of them up to date.
func (c *Class) paused(now time.Time) (until time.Time) {
	for ; c != nil; c = c.parent.Load() {
		c.recover(now)
		if c.limits() {
			until = later(until, c.throttle.until)
		}
	}
	return until
}

// retry returns when what costs so much, and was refused at now, will find room if
// nothing else comes before it: the first that waits has left, and the rest leaves
// soon enough. Like max_wait it goes by an estimate.
func (c *Class) retry(now time.Time, cost *Cost) time.Time {
	at := now
	if c.conf.MaxWait > 0 {
		if expected := c.expects(now, cost); expected == limit.Never {
			return limit.Never
		} else {
			at = later(at, expected.Add(-time.Duration(c.conf.MaxWait)))
		}
	}
	if front := c.front(); front != nil && !c.queue.HasRoom(int(cost.Packets), cost.Bytes) {
		for x := c; x != nil; x = x.parent.Load() {
			at = later(at, x.paces(now, front.Cost.in(x.kind)))
		}
	}
	return at
}

// assures returns when what waits in the class has left at its assured rate.
func (c *Class) assures(now time.Time) time.Time {
	switch {
	case c.feed != nil: // its own queue is assured of nothing
		return limit.Never
	case c.assured == nil:
		return now
	}
	return c.assured.After(now, c.backlog)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

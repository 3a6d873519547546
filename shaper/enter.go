package shaper

import (
	"math"
	"time"

	"shaper/limit"
)

// A Verdict says what becomes of an item that enters a class.
type Verdict uint8

const (
	Leaves  Verdict = iota // it may leave at once, and is charged
	Waits                  // it is in the queue; Release returns it when its time has come
	Full                   // the queue has no room for it
	TooLong                // it would wait longer than max_wait
)

// Enter offers an item at now. An item that costs nothing in the units of the class and of
// those above it leaves at once. A class with buckets has no room itself: Join returns the
// bucket to enter.
func (c *Class) Enter(now time.Time, it *Item) Verdict {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	verdict := offer(now, c, it)
	if verdict == Waits && c.queue.Front() == &it.place {
		root.wake(now)
	}
	return verdict
}

// offer is Enter for a caller that holds the lock. It does not tell the waker.
func offer(now time.Time, c *Class, it *Item) Verdict {
	it.arrived, it.charged, it.verdict = now, nil, Leaves
	switch {
	case !c.charges(&it.Cost):
		if it.Asks {
			c.countInFlight(1)
		}
		return Leaves
	case c.keys != nil:
		return Full
	}
	if passes, contested := c.passes(now, &it.Cost); passes {
		d := departure{from: &c.node, now: now, settles: it.Settles}
		if d.letGo(it); contested {
			c.update(now)
		}
		return Leaves
	}
	c.tally.overlimit()
	if verdict := refusal(now, c, it); verdict != Waits {
		return verdict
	}
	if c.push(it); c.queue.Front() == &it.place {
		c.update(now)
	}
	return Waits
}

// refusal returns why an item may not wait in a class; Waits if it may.
func refusal(now time.Time, c *Class, it *Item) Verdict {
	switch {
	case c.needsNoRoom(it):
		return Waits
	case !it.First && !c.queue.HasRoom(int(it.Cost.Packets), it.Held):
		return Full
	case c.conf.MaxWait > 0 && c.shadow == nil && waitsTooLong(now, c, it):
		return TooLong
	}
	return Waits
}

// waitsTooLong reports whether an item would wait longer than the class allows.
func waitsTooLong(now time.Time, c *Class, it *Item) bool {
	most := now.Add(time.Duration(c.conf.MaxWait))
	f := forecastAt(now, c)
	f.most = most
	return f.entered(it).After(most)
}

// Pass is Enter for what would not wait, and so needs no Item. It reports whether what
// costs so much may leave at now, and charges it then. The caller calls Left when it has
// left; see Item.Settles.
func (c *Class) Pass(now time.Time, cost Cost) bool {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if !c.charges(&cost) {
		return true
	}
	if c.keys != nil {
		return false
	}
	passes, contested := c.passes(now, &cost)
	if !passes {
		return false
	}
	c.tally.waited(0)
	d := departure{from: &c.node, now: now, settles: true}
	if d.depart(now, &cost, nil); contested {
		c.update(now)
	}
	return true
}

// Release takes out the item of the whole tree that leaves at now, charges it and returns
// it; nil if none may leave yet. An item that is refused since is returned, too; see Item.Verdict.
func (c *Class) Release(now time.Time) *Item {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	return release(now, root)
}

// release is Release for a caller that holds the lock of the tree.
func release(now time.Time, root *node) *Item {
	if it := takeOverdue(now, root); it != nil {
		retireIfUnused(now, it.class)
		return it
	}
	if next := root.next(now); next.After(now) || next == limit.Never {
		return nil
	}
	it := root.asChild.head
	c := it.class
	if c.handing.Load() { // by the pacer of the tree that the class was in until just now
		return nil
	}
	c.remove(it)
	d := departure{from: &c.node, now: now, settles: it.Settles}
	d.letGo(it)
	d.pay(&it.Cost)
	c.update(now)
	retireIfUnused(now, c)
	return it
}

// letGo charges an item that leaves, whether it has waited or not.
func (d *departure) letGo(it *Item) {
	c := d.from.class
	c.tally.waited(d.now.Sub(it.arrived))
	if !it.Busy || it.since.IsZero() {
		it.since = it.arrived
	}
	d.depart(it.since, &it.Cost, it)
	it.charged, it.arrived, it.lasts = c, d.now, 0
	if !d.over.IsZero() {
		it.lasts = uint32(min(max(d.over.Sub(d.now), 1), math.MaxUint32))
	}
}

// depart charges a cost to every class on the path, and offers it to their shadows. Its source
// has had it ready since the time since. it is the item that has the cost; nil if Pass lets it
// leave without one.
func (d *departure) depart(since time.Time, cost *Cost, it *Item) {
	asks := it != nil && it.Asks
	d.charge(d.from, since, cost)
	if asks {
		d.from.countInFlight(1)
	}
	for n := d.from; n != nil; n = n.parent.Load() {
		if shadow := n.class.shadow; n.passive && shadow != nil && n.class.keys == nil && cost.In(n.kind) > 0 {
			shadow.offer(d.now, *cost, it.mirror(), asks)
		}
	}
}

// Left says that what Pass let leave at the time then has left at now, or never will; see
// Item.Left.
func (c *Class) Left(now, then time.Time, cost Cost) { left(now, then, c, &cost) }

// Left says that the item has left at now, or never will. In each class that was charged, the gap
// begins now if the class counts gaps, and a sliding log counts the item from now on.
func (it *Item) Left(now time.Time) {
	if it.charged != nil {
		left(now, it.arrived, it.charged, &it.Cost)
	}
}

// left says that what a class has let go at the time then has left at a time.
func left(at, then time.Time, c *Class, cost *Cost) {
	if !c.owner.retiring.Load() && !c.pathNeedsLeft() {
		return
	}
	root, now := c.lockAt(at)
	defer root.mu.Unlock()
	c.settlePath(now, at, then, cost)
	c.update(now)
	root.wake(now)
	retireIfUnused(now, c)
}

// Return offers the item to a class again, after a turn that it could not use. If the item has waited in this class, it goes
// before all others, however long it has to wait and even if the queue is full. What was charged for its turn
// is lost, except to windows. If the class does not count the item any more, the item may leave at once.
func (it *Item) Return(now time.Time, c *Class) Verdict {
	if charged := it.charged; charged != nil {
		it.Left(it.arrived)
		if it.Asks {
			charged.Provider().Answered(now, false)
		}
		charged.Provider().Unused(now, it.arrived, it.Cost)
	}
	waited := it.charged == c // else its owner has moved to c just now
	it.First, it.Accepted = waited, waited
	return c.Enter(now, it)
}

// Cancel takes an item out of the queue, and reports whether it waited there. If it did
// not, it has left, or has never entered.
func (c *Class) Cancel(now time.Time, it *Item) bool {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if !c.remove(it) {
		return false
	}
	c.update(now)
	root.wake(now)
	retireIfUnused(now, c)
	return true
}

// Evict takes the items that match out of the queues of the class, of its buckets and groups. It
// returns them in the order of each queue. They are not charged. match must not block, nor
// call a class.
func (c *Class) Evict(now time.Time, match func(*Item) bool) []*Item {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	var evicted []*Item
	withQueues(c, func(c *Class) {
		for e := c.queue.Front(); e != nil; {
			it := e.Value
			e = e.Next()
			if match(it) {
				c.remove(it)
				evicted = append(evicted, it)
			}
		}
		c.update(now)
		retireIfUnused(now, c)
	})
	root.wake(now)
	return evicted
}

// Backlog returns what waits in the class and all beneath it. If the class has replaced
// another one, what still waits there counts too, as in the counters.
func (c *Class) Backlog() Backlog {
	root := c.lock()
	b, former := c.backlog(), c.former
	root.mu.Unlock()
	if former != nil {
		b = b.plus(former.Backlog())
	}
	return b
}

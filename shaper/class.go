package shaper

import (
	"sync"
	"sync/atomic"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// Class decides when items leave that share one limit. It is a node of a tree:
// an item leaves when its class and every one above allow it, and is charged to
// all of them. A Class may be used concurrently. Its methods take the time as an
// argument: the pacer drives a live one by the clock, tests and simulations by
// times of their own.
type Class struct {
	// Stats are the counters of the class and those beneath it. Enter and Release count
	// waiting, whoever moves the bytes counts what was sent, dropped or refused.
	Stats *stats.Class

	name     string
	kind     unit.Kind // what it counts
	pacer    *pacer    // wakes the tree when Next says so; nil: somebody calls Release
	parent   atomic.Pointer[Class]
	piece    atomic.Int64 // what it alone allows of Piece
	settles  atomic.Bool  // Left matters to it
	enforces atomic.Bool  // what its policy says
	rate     atomic.Pointer[unit.Rate]
	handing  atomic.Bool // the pacer has taken an item out of the queue, and its owner is being told

	mu     sync.Mutex // of the whole tree, where this is the root of one; see lock
	due    alarm      // when the pacer looks again at the tree, in the same way
	latest time.Time  // that something happened in the tree, in the same way

	// The rest is under the lock of the tree.
	conf    policy.Class
	limiter limit.Limiter  // in the unit of the class: nothing leaves above it
	settler limit.Settler  // limiter, if it is one
	assured *leaky.Assured // nil: whatever the limiter allows is assured
	slack   time.Duration  // as much is not lost in waiting for a turn; see chargeUp
	queue   leaky.Queue[Item]
	backlog int64     // cost of the queue, in that unit
	beneath Cost      // of all that waits in the class and its children
	waiting int64     // those items; a datagram of a train is one
	former  *Class    // whose place it has taken, and whose backlog is its own to tell; nil: none
	free    bool      // something of that may cost nothing in its unit
	from    *Class    // whose item was charged last: its own, or of one beneath it
	flying  int       // items that Ask, and have no answer, of the class and its children
	leaving time.Time // since when an item is on its way out, where that matters; zero: none is

	throttle throttle // what its provider's signals have made of it

	shadow *Class // computes what the class would do, which itself does nothing; nil: it does what it says
	trial  *Trial // what has copies enter the class; nil: a class above it has that, or things really enter
	keys   *keys  // its buckets, which are children of it; nil: it has one for all, itself
	membership
	sessions

	place contender // among the children of its parent
	own   contender // of its queue, among its children
	feed  *feed     // its children; nil: it has none
}

// NewClass returns an idle class that somebody drives by hand: Enter, Next and
// Release. It has what its policy allows at first: a leaky class lets one item
// leave at once, a token class a burst.
func NewClass(now time.Time, conf policy.Class) *Class {
	c := newClass(conf, new(stats.Class))
	if conf.Per != (policy.Per{}) {
		c.keys = newKeys(now, c)
	}
	c.install(now, conf, newLimiter(now, conf))
	return c
}

// newClass returns a class that has no limiter yet.
func newClass(conf policy.Class, counters *stats.Class) *Class {
	c := &Class{Stats: counters, name: conf.Name, kind: conf.Rate.Kind()}
	c.due.class = c
	c.place.init(c, false)
	c.own.init(c, true)
	return c
}

// successor returns the class that takes the place of c where another unit is
// to be counted. It has the counters of c, and no burst to give.
func (c *Class) successor(now time.Time, conf policy.Class) *Class {
	next := NewClass(now, conf)
	next.Stats, next.pacer = c.Stats, c.pacer
	next.replace(c)
	if next.keys != nil {
		next.keys.since = now
	}
	next.install(now, conf, startedLimiter(now, conf, 0))
	return next
}

// Name returns the name of the class in the policy.
func (c *Class) Name() string { return c.name }

// Parent returns the class above; nil for none.
func (c *Class) Parent() *Class { return c.parent.Load() }

// Piece returns the most bytes of a stream that may be one item: the least that
// any class on the path to the root allows.
func (c *Class) Piece() int64 {
	piece := c.piece.Load()
	for p := c.parent.Load(); p != nil; p = p.parent.Load() {
		piece = min(piece, p.piece.Load())
	}
	return piece
}

// Rate returns the limit in force, without headroom: the ceil of a class that
// has one.
func (c *Class) Rate() unit.Rate { return *c.rate.Load() }

// Enforces reports whether the class does what its policy says, and does not only
// compute it.
func (c *Class) Enforces() bool { return c.enforces.Load() }

// Counts reports whether the class, or one above it, counts in a unit.
func (c *Class) Counts(kind unit.Kind) bool {
	for ; c != nil; c = c.parent.Load() {
		if c.kind == kind {
			return true
		}
	}
	return false
}

// Counting returns the nearest class on the path to the root that counts in a unit; nil
// for none.
func (c *Class) Counting(kind unit.Kind) *Class {
	for ; c != nil && c.kind != kind; c = c.parent.Load() {
	}
	return c
}

// Policy returns what is in force, with the changes that Set made.
func (c *Class) Policy() policy.Class {
	defer c.lock().mu.Unlock()
	return c.conf
}

// A Verdict says what becomes of an item that enters a class.
type Verdict uint8

const (
	Leaves  Verdict = iota // it has left already, and is charged
	Waits                  // it is in the queue; Release returns it when its time comes
	Full                   // the queue has no room for it
	TooLong                // it would wait longer than max_wait
)

// Enter offers an item at now. An item that costs nothing in the units of the
// class and of those above it leaves at once. A class that has a bucket per key
// has room for nothing itself: Join tells the one to enter.
func (c *Class) Enter(now time.Time, it *Item) Verdict {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	verdict := c.enter(now, it)
	if verdict == Waits && c.queue.Front() == &it.place {
		root.wake(now)
	}
	return verdict
}

// enter is Enter, with the lock and without telling the pacer.
func (c *Class) enter(now time.Time, it *Item) Verdict {
	it.arrived, it.charged = now, nil
	switch {
	case !c.charges(&it.Cost):
		if it.Asks {
			c.countFlying(1)
		}
		return Leaves
	case c.keys != nil:
		return Full
	}
	if passes, contested := c.passes(now, &it.Cost); passes {
		if c.let(now, it); contested {
			c.update(now)
		}
		return Leaves
	}
	c.countOverlimit()
	if !c.waitsRegardless(it) {
		if !c.queue.HasRoom(int(it.Cost.Packets), it.Held) {
			return Full
		}
		if c.conf.MaxWait > 0 && c.shadow == nil && c.expects(now, &it.Cost).Sub(now) > time.Duration(c.conf.MaxWait) {
			return TooLong
		}
	}
	if c.push(it); c.queue.Front() == &it.place {
		c.update(now)
	}
	return Waits
}

// Pass is Enter for what needs no Item since it would not wait: it reports
// whether what costs so much leaves at now, and is charged then. Whoever lets it
// out calls Left when it has left: until then, for a second at most, nothing follows
// it out of a class that counts gaps.
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
	c.countWait(0)
	if c.charge(nil, now, now, &cost, true); contested {
		c.update(now)
	}
	return true
}

// Retry returns how long it takes until what costs so much, and was refused at now,
// will find room if nothing else comes before it; by an estimate, as max_wait is. It
// is the longest Duration where that is never.
func (c *Class) Retry(now time.Time, cost Cost) time.Duration {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	return c.retry(now, &cost).Sub(now)
}

// waitsRegardless reports whether an item waits even if the queue has no room: what
// holds up its own source is bounded by the number of sources, and what has been accepted
// by the room that there was.
func (c *Class) waitsRegardless(it *Item) bool {
	// What can be made to wait comes over TCP, whatever its class counts.
	return it.Accepted || it.Patient && c.conf.OverflowFor(policy.TCP) == policy.Wait
}

// Next returns when the next item of the tree that the class is in may leave: a
// moment not after now means at once, limit.Never that none waits or none may
// leave.
func (c *Class) Next(now time.Time) time.Time {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	return root.next(now)
}

// Release returns the item of the tree that leaves at now and charges it; nil
// when none may leave before Next.
func (c *Class) Release(now time.Time) *Item {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	return root.release(now)
}

// Left says that an item which was let go has left at now, or will not. Where
// the gap between departures counts, it counts from this moment, in each class
// that the item was charged to.
func (c *Class) Left(now time.Time) {
	if c.wantsLeft() {
		root, now := c.lockAt(now)
		defer root.mu.Unlock()
		c.hasLeft(root, now, nil)
	}
}

// Cancel takes an item out of the queue, and reports whether it waited there.
// One that did not has left, or never entered.
func (c *Class) Cancel(now time.Time, it *Item) bool {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if !c.remove(it) {
		return false
	}
	c.update(now)
	root.wake(now)
	c.retire(now)
	return true
}

// Evict takes the waiting items that match out of the queue, and out of those of
// its buckets, and returns them, the ones of a queue in their order. They have not
// left and are not charged.
func (c *Class) Evict(now time.Time, match func(*Item) bool) []*Item {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	var evicted []*Item
	c.each(func(c *Class) {
		for e := c.queue.Front(); e != nil; {
			it := e.Value
			e = e.Next()
			if match(it) {
				c.remove(it)
				evicted = append(evicted, it)
			}
		}
		c.update(now)
		c.retire(now)
	})
	root.wake(now)
	return evicted
}

// A Backlog is what waits at one moment.
type Backlog struct {
	Items int64 // several datagrams that wait together count as what they are
	Bytes int64 // payload
}

// Backlog returns what waits in the class and all beneath it. What still waits in a
// class whose place it has taken is a part of that, as its counters are.
func (c *Class) Backlog() Backlog {
	root := c.lock()
	b, former := Backlog{Items: c.waiting, Bytes: c.beneath.Bytes}, c.former
	root.mu.Unlock()
	if former != nil {
		more := former.Backlog()
		b.Items += more.Items
		b.Bytes += more.Bytes
	}
	return b
}

// replace takes the place of a class. One that this replaced, and in which nothing
// waits any more, is forgotten.
func (c *Class) replace(old *Class) {
	if old.former != nil && old.former.Backlog() == (Backlog{}) {
		root := old.lock()
		old.former = nil
		root.mu.Unlock()
	}
	c.former = old
}

// Drain returns what waits in the queue of the class and in those of its buckets, in
// its unit, and how long the last of it will take to leave, as max_wait estimates it:
// limit.Never's distance if it never leaves.
func (c *Class) Drain(now time.Time) (cost int64, drain time.Duration) {
	defer c.lock().mu.Unlock()
	c.each(func(c *Class) {
		if c.queue.Len() > 0 {
			cost += c.backlog
			drain = max(drain, c.expects(now, &Cost{}).Sub(now))
		}
	})
	return cost, drain
}

// front returns the item that has waited longest; nil where none waits.
func (c *Class) front() *Item {
	if e := c.queue.Front(); e != nil {
		return e.Value
	}
	return nil
}

func (c *Class) push(it *Item) {
	it.class = c
	it.place.Value, it.place.Bytes, it.place.Items = it, it.Held, int(it.Cost.Packets)
	c.queue.Push(&it.place)
	c.backlog += it.Cost.in(c.kind)
	c.waits(it.Cost, max(it.Cost.Packets, 1))
}

func (c *Class) remove(it *Item) bool {
	if !c.queue.Remove(&it.place) {
		return false
	}
	c.backlog -= it.Cost.in(c.kind)
	c.waits(it.Cost.negative(), -max(it.Cost.Packets, 1))
	return true
}

// waits notes that so many more items of that cost, or fewer, wait in the class and in
// those above it.
func (c *Class) waits(cost Cost, items int64) {
	for ; c != nil; c = c.parent.Load() {
		c.beneath.add(&cost)
		c.waiting += items
		if items < 0 {
			c.free = c.free && c.waiting > 0
		} else if cost.in(c.kind) == 0 {
			c.free = true
		}
	}
}

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

// Class decides when items leave that share one limit. A Class may be used
// concurrently. Its methods take the time as an argument: the pacer drives a
// live one by the clock, tests and simulations by times of their own.
type Class struct {
	// Stats are the counters of the class. Enter and Release count waiting,
	// whoever moves the bytes counts what was sent, dropped or refused.
	Stats *stats.Class

	name    string
	kind    unit.Kind    // what it counts
	pacer   *pacer       // wakes the class when Next says so; nil: somebody calls Release
	piece   atomic.Int64 // see Piece
	settles atomic.Bool  // Left matters
	rate    atomic.Pointer[unit.Rate]

	mu      sync.Mutex
	conf    policy.Class
	limiter limit.Limiter // in the unit of the class
	settler limit.Settler // limiter, if it is one
	queue   leaky.Queue[Item]
	backlog int64     // cost of the queue in that unit
	due     alarm     // when the pacer looks again
	leaving time.Time // since when an item is on its way out, where that matters; zero: none is
	handing bool      // the pacer has taken an item out of the queue, and its owner is being told
}

// leavePatience is how long an item may be on its way out before the class goes
// on without it.
const leavePatience = time.Second

// NewClass returns an idle class that somebody drives by hand: Enter, Next and
// Release. It has what its policy allows at first: a leaky class lets one item
// leave at once, a token class a burst.
func NewClass(now time.Time, conf policy.Class) *Class {
	c := &Class{Stats: new(stats.Class), name: conf.Name, kind: conf.Rate.Kind()}
	c.due.class = c
	c.limiter = newLimiter(now, conf)
	c.adopt(conf)
	return c
}

// successor returns the class that takes the place of c where another unit is
// to be counted. It has the counters of c, and no burst to give.
func (c *Class) successor(now time.Time, conf policy.Class) *Class {
	next := NewClass(now, conf)
	next.Stats, next.pacer = c.Stats, c.pacer
	next.limiter = startedLimiter(now, conf, 0)
	next.adopt(conf)
	return next
}

// Name returns the name of the class in the policy.
func (c *Class) Name() string { return c.name }

// Piece returns the most bytes of a stream that may be one item.
func (c *Class) Piece() int64 { return c.piece.Load() }

// Rate returns the rate in force, without headroom.
func (c *Class) Rate() unit.Rate { return *c.rate.Load() }

// Policy returns what is in force, with the changes that Set made.
func (c *Class) Policy() policy.Class {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// Enter offers an item at now. An item that costs nothing in the unit of the
// class leaves at once.
func (c *Class) Enter(now time.Time, it *Item) Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	it.arrived, it.charged = now, nil
	n := it.Cost.in(c.kind)
	if n == 0 {
		return Leaves
	}
	if c.passes(now, n) {
		c.take(now, it, n)
		return Leaves
	}
	c.Stats.Overlimits.Add(1)
	if !c.waitsRegardless(it) {
		if !c.queue.HasRoom(int(it.Cost.Packets), it.Held) {
			return Full
		}
		if c.conf.MaxWait > 0 && c.limiter.Next(now, c.backlog, n).Sub(now) > time.Duration(c.conf.MaxWait) {
			return TooLong
		}
	}
	c.push(now, it, n)
	return Waits
}

// Pass is Enter for what needs no Item since it would not wait: it reports
// whether what costs so much leaves at now, and is charged then. Whoever lets it
// out calls Left when it has left.
func (c *Class) Pass(now time.Time, cost Cost) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := cost.in(c.kind)
	if n == 0 {
		return true
	}
	if !c.passes(now, n) {
		return false
	}
	c.Stats.Wait.Observe(0)
	c.limiter.Take(now, now, n)
	c.expectLeft(now)
	return true
}

// passes reports whether what costs n may leave without waiting.
func (c *Class) passes(now time.Time, n int64) bool {
	return c.queue.Len() == 0 && !c.handing && !c.allows(now, n).After(now)
}

// expectLeft notes that something is on its way out.
func (c *Class) expectLeft(now time.Time) {
	if c.settler != nil {
		c.leaving = now
	}
}

// waitsRegardless reports whether an item waits even where the queue has no
// room: what holds up its own source is bounded by the number of sources.
func (c *Class) waitsRegardless(it *Item) bool {
	// What can be made to wait comes over TCP, whatever its class counts.
	return it.Patient && c.conf.OverflowFor(policy.TCP) == policy.Wait
}

// Next returns when the item that has waited longest may leave: a moment not
// after now means at once, limit.Never that none waits or none may leave.
func (c *Class) Next(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next(now)
}

func (c *Class) next(now time.Time) time.Time {
	head := c.queue.Front()
	if head == nil {
		return limit.Never
	}
	return c.allows(now, head.Value.Cost.in(c.kind))
}

// allows returns when an item that costs n may leave, if it is the next.
func (c *Class) allows(now time.Time, n int64) time.Time {
	at := c.limiter.Next(now, 0, n)
	if c.leaving.IsZero() {
		return at
	}
	if late := c.leaving.Add(leavePatience); late.After(at) {
		return late
	}
	return at
}

// Release returns the item that leaves at now and charges it; nil when none
// may leave before Next.
func (c *Class) Release(now time.Time) *Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.release(now)
}

// hand is Release for the pacer, which calls it again once it has told the owner
// of the item: until then nothing may overtake that one.
func (c *Class) hand(now time.Time) *Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	it := c.release(now)
	c.handing = it != nil
	return it
}

func (c *Class) release(now time.Time) *Item {
	next := c.next(now)
	if next.After(now) || next == limit.Never {
		return nil
	}
	it := c.queue.Front().Value
	c.remove(it)
	c.take(now, it, it.Cost.in(c.kind))
	return it
}

// Left says that an item which was let go has left at now, or will not. Where
// the gap between departures counts, it counts from this moment.
func (c *Class) Left(now time.Time) {
	if !c.settles.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settler != nil {
		c.leaving = time.Time{}
		c.settler.Left(now)
		c.wake(now)
	}
}

// Cancel takes an item out of the queue, and reports whether it waited there.
// One that did not has left, or never entered.
func (c *Class) Cancel(now time.Time, it *Item) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.remove(it) {
		return false
	}
	c.wake(now)
	return true
}

// Evict takes the waiting items that match out of the queue and returns them,
// the one that has waited longest first. They have not left and are not charged.
func (c *Class) Evict(now time.Time, match func(*Item) bool) []*Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	var evicted []*Item
	for e := c.queue.Front(); e != nil; {
		it := e.Value
		e = e.Next()
		if match(it) {
			c.remove(it)
			evicted = append(evicted, it)
		}
	}
	c.wake(now)
	return evicted
}

// Backlog returns what waits, in the unit of the class, and how long the last
// of it would take to leave: limit.Never's distance where it never does.
func (c *Class) Backlog(now time.Time) (cost int64, drain time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.backlog == 0 {
		return 0, 0
	}
	return c.backlog, max(c.limiter.Next(now, c.backlog, 0).Sub(now), 0)
}

func (c *Class) take(now time.Time, it *Item, n int64) {
	c.Stats.Wait.Observe(now.Sub(it.arrived))
	if !it.Busy || it.since.IsZero() {
		it.since = it.arrived
	}
	c.limiter.Take(it.since, now, n)
	if it.Settles {
		c.expectLeft(now)
	}
	it.charged = c
}

func (c *Class) push(now time.Time, it *Item, n int64) {
	it.place.Value, it.place.Bytes, it.place.Items = it, it.Held, int(it.Cost.Packets)
	c.queue.Push(&it.place)
	c.backlog += n
	c.Stats.BacklogItems.Add(max(it.Cost.Packets, 1))
	c.Stats.BacklogBytes.Add(it.Cost.Bytes)
	if c.queue.Front() == &it.place {
		c.wake(now)
	}
}

func (c *Class) remove(it *Item) bool {
	if !c.queue.Remove(&it.place) {
		return false
	}
	c.backlog -= it.Cost.in(c.kind)
	c.Stats.BacklogItems.Add(-max(it.Cost.Packets, 1))
	c.Stats.BacklogBytes.Add(-it.Cost.Bytes)
	return true
}

// wake tells the pacer when to look again.
func (c *Class) wake(now time.Time) {
	if c.pacer != nil {
		c.pacer.set(&c.due, c.next(now))
	}
}

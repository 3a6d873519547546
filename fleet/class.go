package fleet

import (
	"errors"
	"fmt"
	"math"
	"time"

	"shaper/unit"
)

// An Algorithm says in what form the store hands out the budget of a class.
type Algorithm int

const (
	// Slots are departure times, one period apart. With a Burst of 1 they are a leaky bucket;
	// with more, GCRA or a token bucket.
	Slots Algorithm = iota
	// FixedWindow counts units in windows of the store's clock, in UTC, or in those that Bounds returns.
	FixedWindow
	// SlidingWindow weighs the window before this one, as limit.SlidingWindow does.
	SlidingWindow
	// SlidingLog counts units in grains, 256 in a window. In any window at most the limit leaves;
	// up to 1 % of the limit is not used.
	SlidingLog
)

// A Class is what all members of a fleet have to agree on: whose budget it is, and how large. The
// zero values of Algorithm and Burst are a leaky bucket.
type Class struct {
	Name      string
	Algorithm Algorithm
	// Rate is the pace: the limit less its headroom. A rate of 0 lets nothing leave.
	Rate unit.Rate
	// Burst is how many units may leave at once; below 1 counts as 1. Windows have none.
	Burst int64
	// Late is how much later than its slot a unit may leave. A slot that is later is lost. For a
	// provider that enforces gaps it is less than the headroom of one gap, 1/Rate less 1/limit: the rest is for the way to
	// the provider. Windows have none.
	Late time.Duration
	// Window is the length of a window. Slots have none.
	Window time.Duration
	// Bounds returns the window of the calendar that contains a time; nil if windows follow one
	// another at their length. Only a FixedWindow has it.
	Bounds func(time.Time) (from, to time.Time)
	// Deadline is how long a call to the store may take; less than 50 ms counts as 50 ms, more than 250 ms as
	// 250 ms. It says how far ahead slots are granted. Answers should take less than 0.4 of it. If members
	// differ, the shortest holds for all.
	Deadline time.Duration

	shortest time.Duration // deadline of all members; 0: not known
	terms    *terms        // nil: they follow from Deadline and shortest
}

// terms are the times that bound what may be lost.
type terms struct {
	horizon  time.Duration // no slot begins later than this after its grant
	transit  time.Duration // for an answer on its way, a late departure and the errors of clocks
	hold     time.Duration // how long the share of a silent member is held back
	recovery time.Duration // how long members tell a store what it has lost of a window
	turn     time.Duration // how long the first in line has the next slot to itself
	busy     time.Duration // how long after its last call a member is silent, if something waits
	idle     time.Duration // and if nothing does
}

var standardTerms = terms{
	horizon:  50 * time.Millisecond,
	transit:  50 * time.Millisecond,
	hold:     10 * time.Minute,
	recovery: 1500 * time.Millisecond,
	turn:     10 * time.Millisecond,
	busy:     50 * time.Millisecond,
	idle:     2 * time.Second,
}

// defaultDeadline is that of a Class and of a Store.
const defaultDeadline = 50 * time.Millisecond

// maxDeadline bounds how far ahead slots are granted, since nobody can take them back.
const maxDeadline = 250 * time.Millisecond

// tooVague returns the error of the clock above which a member may miss a jump that matters. The transit time
// of a fence, which is as long as the horizon, covers twice that error.
func (t terms) tooVague() time.Duration { return t.horizon * 2 / 5 }

// Check returns what is wrong with a class.
func (c *Class) Check() error {
	switch {
	case c.Name == "":
		return errors.New("fleet: a class needs a name")
	case c.Rate.Kind() == 0:
		return fmt.Errorf("fleet: class %q needs a rate", c.Name)
	case c.Algorithm != Slots && c.Window < time.Millisecond:
		return fmt.Errorf("fleet: class %q needs a window of at least 1ms", c.Name)
	case c.Algorithm != FixedWindow && c.Bounds != nil:
		return fmt.Errorf("fleet: class %q has bounds, which only a fixed window can have", c.Name)
	case c.Algorithm == Slots && c.Late <= 0:
		return fmt.Errorf("fleet: class %q needs Late, how late a slot may be used: every timer is late", c.Name)
	}
	return nil
}

// timing returns the terms in force.
func (c *Class) timing() terms {
	if c.terms != nil {
		return *c.terms
	}
	d := c.deadline()
	if c.shortest > 0 {
		d = min(d, c.shortest)
	}
	return termsOf(d)
}

// ownTiming returns what timing would if all members had the deadline of this one.
func (c *Class) ownTiming() terms {
	if c.terms != nil {
		return *c.terms
	}
	return termsOf(c.deadline())
}

func (c *Class) deadline() time.Duration { return min(max(c.Deadline, defaultDeadline), maxDeadline) }

func termsOf(d time.Duration) terms {
	t := standardTerms
	t.horizon, t.transit, t.busy, t.turn = d, d, d, d/5
	return t
}

// maxUnits bounds what one call asks for, so that the script computes exactly.
const maxUnits = 1 << 26

// Limit returns how many units a window holds; 0 for slots.
func (c *Class) Limit() int64 {
	if c.Algorithm == Slots {
		return 0
	}
	return min(c.Rate.Units(c.Window), 1<<43)
}

// costOf returns what an item of n units costs: a window is full after its limit.
func (c *Class) costOf(n int64) int64 { return min(n, c.largestCost()) }

// largestCost returns what the largest item costs.
func (c *Class) largestCost() int64 {
	if c.Algorithm == Slots {
		return maxUnits
	}
	return min(c.Limit(), maxUnits)
}

// Lease returns how many units a member asks for at once: what the rate allows in half of the horizon, or 1 % of
// a window, and at least 1.
func (c *Class) Lease() int64 {
	if c.Algorithm == Slots {
		return min(max(c.Rate.Units(c.timing().horizon/2), 1), maxUnits)
	}
	return min(max(c.Limit()/100, 1), maxUnits)
}

// burst returns Burst, at least 1.
func (c *Class) burst() int64 { return max(c.Burst, 1) }

// lateness returns how long after the time of its slot a unit may leave. A leaky bucket keeps departures
// Rate.Time(1)-Late apart. So one that is late, and has slots of its own after it, delays these, and
// each of them makes up for Late.
func (c *Class) lateness() lateness {
	depth := c.Rate.Time(c.burst() - 1)
	l := lateness{slot: depth + min(c.Late, math.MaxInt64-depth)}
	if c.Algorithm == Slots && c.burst() == 1 {
		l.keeps = true
		if c.Late < c.Rate.Time(1) {
			l.own = c.Late
		}
	}
	return l
}

// blocks reports whether nothing ever leaves.
func (c *Class) blocks() bool {
	return c.Rate.IsZero() || c.Algorithm != Slots && c.Limit() == 0
}

// atShare returns the class with so many millionths of its rate. The other members have the rest.
func (c *Class) atShare(share int64) Class {
	own := *c
	own.Rate = c.Rate.Below(unit.Percent(whole - share))
	return own
}

// whole is a share of all, in millionths, as in a unit.Percent.
const whole = 1_000_000

// depth returns how far in the past the first slot after idle may lie.
func (c *Class) depth() time.Duration {
	if c.Algorithm != Slots {
		return 0
	}
	return min(c.Rate.Time(c.burst()-1), 365*24*time.Hour)
}

// sinceZero is the time from Go's zero time, at which all windows begin, until 1970.
const sinceZero = 62135596800 * 1_000_000 // microseconds

// offset returns what to add to a time in microseconds since 1970 so that windows begin at its multiples.
func (c *Class) offset() int64 {
	if c.Window < time.Microsecond {
		return 0
	}
	return sinceZero % c.Window.Microseconds()
}

// countsUntil returns until when units of a window make a difference that leave at a time by the local clock. ends is when the window ends
// for all members. In a sliding window they also count, less and less, as the window before the next one.
func (c *Class) countsUntil(left, ends time.Time) time.Time {
	switch c.Algorithm {
	case SlidingWindow:
		return ends.Add(c.Window)
	case SlidingLog: // this clock may be the faster one
		return left.Add(c.Window + c.Window/fastest)
	}
	return ends
}

// faded returns how many units of a sliding window count that will count no more after lasts: all until the window is over, then
// less and less for as long as a window.
func (c *Class) faded(units int64, lasts time.Duration) int64 {
	if lasts >= c.Window {
		return units
	}
	return int64(math.Ceil(float64(units) * lasts.Seconds() / c.Window.Seconds()))
}

// windowOf returns the fixed or sliding window that contains a time of the store's clock.
func (c *Class) windowOf(at Stamp) (from, to Stamp) {
	if c.Bounds != nil {
		from, to := c.Bounds(time.UnixMicro(int64(at)))
		return Stamp(from.UnixMicro()), Stamp(to.UnixMicro())
	}
	window := Stamp(c.Window.Microseconds())
	from = at - (at+Stamp(c.offset()))%window
	return from, from + window
}

package leaky

import (
	"math"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// debt is what has left and is not paid for yet.
//
// The arithmetic is exact: owed counts whole units since base, and base moves
// only by amounts of units that take whole nanoseconds. No rounding adds up.
type debt struct {
	rate unit.Rate
	base time.Time // owed drains from here on
	owed int64     // units
	paid time.Time // when they have drained, at a rate above 0
}

// free returns when all is paid for, with ahead units more.
func (d *debt) free(ahead int64) time.Time {
	if d.rate.IsZero() {
		return limit.Never
	}
	if ahead == 0 {
		return d.paid
	}
	return limit.After(d.base, d.rate.Time(d.owed+ahead))
}

// settle says that nothing is owed at a time.
func (d *debt) settle(at time.Time) { d.base, d.owed, d.paid = at, 0, at }

// owe adds n units.
func (d *debt) owe(n int64) {
	d.owed += n
	d.fold()
}

// rerate drains what is still owed at now at another rate. Of a unit that has
// drained in part, the whole is owed.
func (d *debt) rerate(now time.Time, rate unit.Rate) {
	if now.Before(d.base) { // what fold has turned into time are units again
		d.owed += unitsUp(d.rate, d.base.Sub(now))
	} else {
		d.owed -= min(d.rate.Units(now.Sub(d.base)), d.owed)
	}
	d.base, d.rate = now, rate
	d.fold()
}

// unitsUp returns how many units the rate allows in d, rounded up.
func unitsUp(rate unit.Rate, d time.Duration) int64 {
	n := rate.Units(d)
	// Exact has no common divisor, so that only multiples of ns come out even.
	if _, ns := rate.Exact(); ns > 0 && int64(d)%ns != 0 {
		n++
	}
	return n
}

// fold moves base on by whole multiples of units, which take whole
// nanoseconds, and so keeps owed small; then paid is known.
func (d *debt) fold() {
	units, ns := d.rate.Exact()
	if units == 0 {
		return
	}
	if d.owed >= units {
		whole := min(d.owed/units, math.MaxInt64/ns)
		d.base = d.base.Add(time.Duration(whole * ns))
		d.owed -= whole * units
	}
	if d.paid = d.base; d.owed > 0 {
		d.paid = limit.After(d.base, d.rate.Time(d.owed))
	}
}

package leaky

import (
	"math"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// A debt is what has departed and is not paid for yet. It drains at a rate.
//
// The arithmetic is exact: owed counts whole units, and base moves only by
// amounts of units that take whole nanoseconds. So rounding errors do not add up.
type debt struct {
	rate unit.Rate
	base time.Time // owed drains from this time on
	owed int64     // units
	paid time.Time // when all of owed has drained, if the rate is above 0
}

// paidAt returns when all is paid for, and ahead units more. It is limit.Never
// under a rate of 0.
func (d *debt) paidAt(ahead int64) time.Time {
	if d.rate.IsZero() {
		return limit.Never
	}
	if ahead == 0 {
		return d.paid
	}
	return limit.After(d.base, d.rate.Time(d.owed+ahead))
}

// clear makes the debt nothing as of a time.
func (d *debt) clear(at time.Time) { d.base, d.owed, d.paid = at, 0, at }

// owe adds n units to the debt. If n is negative, it takes away what owe has added last.
func (d *debt) owe(n int64) {
	d.owed += n
	d.fold()
}

// setRate makes what is still owed at now drain at another rate. A unit that has
// drained in part is owed as a whole.
func (d *debt) setRate(now time.Time, rate unit.Rate) {
	if now.Before(d.base) { // fold has turned units into time: turn it back
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
	// The two numbers of Exact have no common divisor, so only multiples of ns are whole units.
	if _, ns := rate.Exact(); ns > 0 && int64(d)%ns != 0 {
		n++
	}
	return n
}

// fold keeps owed small: it moves base forward by amounts of units that take whole
// nanoseconds. It also computes paid.
func (d *debt) fold() {
	units, ns := d.rate.Exact()
	if units == 0 {
		return
	}
	switch {
	case d.owed < 0: // fold has turned units into time: turn them back
		whole := (units - 1 - d.owed) / units
		d.base = d.base.Add(-time.Duration(whole * ns))
		d.owed += whole * units
	case d.owed >= units:
		whole := min(d.owed/units, math.MaxInt64/ns)
		d.base = d.base.Add(time.Duration(whole * ns))
		d.owed -= whole * units
	}
	if d.paid = d.base; d.owed > 0 {
		d.paid = limit.After(d.base, d.rate.Time(d.owed))
	}
}

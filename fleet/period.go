package fleet

import (
	"math"
	"math/bits"

	"shaper/unit"
)

// A period is the time between two slots: quo + rem/parts microseconds, with rem below parts.
type period struct{ quo, rem, parts int64 }

// A slotTime is a slot by the store's clock, in whole microseconds and parts of one. How large a part is depends on the period.
type slotTime struct {
	us  Stamp
	rem int64 // below period.parts
}

// maxParts bounds the denominator of a period, so that the script computes exactly.
const maxParts = 1 << 26

// periodOf returns the period of a rate. It is exact if parts can be at most maxParts, and else longer by less than
// 1/maxParts microseconds.
func periodOf(rate unit.Rate) period {
	units, ns := rate.Exact()
	if units == 0 {
		return period{math.MaxInt32, 0, 1}
	}
	g := gcd(ns, 1000)
	ns, per := ns/g, 1000/g // ns/(units*per) microseconds
	if units <= maxParts/per {
		parts := units * per
		return period{ns / parts, ns % parts, parts}
	}
	quo := ns / units / per
	rest := ns - quo*units*per // below units*per, which is at most 2^43*1000
	hi, lo := bits.Mul64(uint64(rest), maxParts)
	up, inexact := bits.Div64(hi, lo, uint64(units*per))
	if inexact > 0 {
		up++
	}
	if up == maxParts {
		return period{quo + 1, 0, maxParts}
	}
	return period{quo, int64(up), maxParts}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// length returns the period in microseconds, as exactly as a float64 can.
func (p period) length() float64 { return float64(p.quo) + float64(p.rem)/float64(p.parts) }

// after returns the slot n periods after another one, exactly.
func (p period) after(slot slotTime, n int64) slotTime {
	sum := slot.rem + n*p.rem
	return slotTime{slot.us + Stamp(n*p.quo+sum/p.parts), sum % p.parts}
}

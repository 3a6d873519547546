package unit

import (
	"fmt"
	"math"
	"time"
)

// The bounds of a rate. With them every product in this package and in the limiters fits
// in 128 bits, and a float64 holds every count of tokens exactly.
const (
	maxAmount = 1 << 43        // 8 TiB, or 2^43 items, per period
	maxPeriod = 366 * day      // "/8784h"
	day       = 24 * time.Hour // "d"
)

// Rate is an exact amount per period: 0.75 messages/s is 3/4 of a message per second, and
// 20000 messages/15min keeps its 15 minutes.
//
// A rate of 0 allows nothing. The zero Rate is such a rate and has no Kind. Two rates are
// == if their kinds, amounts and periods are equal.
type Rate struct {
	kind   Kind
	amount fraction // units per period
	per    time.Duration
	exact  fraction // units per nanosecond, which limiters ask for at each item; 0/0 if the rate is 0
}

// NewRate returns n units of kind per period. It panics if n is not from 0 to 2^43, or per
// not above 0 and at most 366 days: that is a bug in the program.
func NewRate(kind Kind, n int64, per time.Duration) Rate {
	if n < 0 || n > maxAmount || per <= 0 || per > maxPeriod {
		panic(fmt.Sprintf("unit: no rate: %d %v per %v", n, kind, per))
	}
	r, _ := rateOf(kind, fraction{n, 1}, per)
	return r
}

// BytesPerSecond returns n bytes per second.
func BytesPerSecond(n int64) Rate { return NewRate(Bytes, n, time.Second) }

const rateForm = `a rate is like "20mbit", "64KiB/s", "200 packets/s" or "120 connections/min"`

// ParseRate reads a rate as policy files and tc write it: bits per second ("20mbit"), bytes
// per period ("64KiB/s"), or a count per period ("30 messages/s", "20000 msg/15min",
// "5000 messages/day"). The prefixes of bits, and KB, MB and GB, are powers of 1000; KiB,
// MiB and GiB are powers of 1024. Its error says what to write instead.
func ParseRate(s string) (Rate, error) {
	r, err := parseRate(s)
	if err != nil {
		return Rate{}, fmt.Errorf("%q is not a rate: %w; %s", s, err, rateRemedy(s))
	}
	return r, nil
}

// Kind returns what the rate counts.
func (r Rate) Kind() Kind { return r.kind }

// Period returns the period as written: 15 minutes for "20000 messages/15min", one second
// for "20mbit".
func (r Rate) Period() time.Duration { return r.per }

// IsZero reports whether the rate is 0, so that nothing ever leaves.
func (r Rate) IsZero() bool { return r.amount.num == 0 }

// PerSecond returns the rate in units per second, rounded to a float64. It is for people
// and metrics; limiters use Exact.
func (r Rate) PerSecond() float64 {
	if r.IsZero() {
		return 0
	}
	return float64(r.amount.num) / float64(r.amount.den) / r.per.Seconds()
}

// Exact returns the rate as a fraction in lowest terms: exactly units per ns nanoseconds.
// Both are 0 if the rate is 0.
func (r Rate) Exact() (units, ns int64) {
	return r.exact.num, r.exact.den
}

// Time returns how long n units take at this rate, rounded up to a nanosecond. It
// saturates at the largest Duration, which it also returns if the rate is 0 and n is not.
// It returns 0 if n is not positive.
func (r Rate) Time(n int64) time.Duration {
	if n <= 0 {
		return 0
	}
	units, ns := r.Exact()
	if units == 0 {
		return math.MaxInt64
	}
	d, inexact := mulDiv(n, ns, units)
	if inexact && d < math.MaxInt64 {
		d++
	}
	return time.Duration(d)
}

// Units returns how many whole units the rate allows in d, rounded down. It saturates at
// MaxInt64.
func (r Rate) Units(d time.Duration) int64 {
	units, ns := r.Exact()
	if units == 0 || d <= 0 {
		return 0
	}
	n, _ := mulDiv(int64(d), units, ns)
	return n
}

// Below returns the rate less the share headroom. If the exact result has more digits than
// a Rate can hold, it is rounded down: the result is never faster.
func (r Rate) Below(headroom Percent) Rate {
	if r.IsZero() || headroom == 0 {
		return r
	}
	part, whole := int64(100*percent-headroom), int64(100*percent)
	if amount, err := r.amount.times(part, whole); err == nil {
		if below, ok := rateOf(r.kind, amount, r.per); ok {
			return below
		}
	}
	for den := finest(r.kind, r.per); den > 0; den /= 10 {
		if amount, ok := r.amount.timesDown(part, whole, den); ok {
			if below, ok := rateOf(r.kind, amount, r.per); ok {
				return below
			}
		}
	}
	panic("unit: no rate below " + r.String()) // a rate of whole units always fits
}

// Compare returns -1 if r is slower than o, 0 if both are equally fast, and +1 if r is
// faster. Periods do not matter. For rates of different kinds, Compare returns the order of
// the kinds.
func (r Rate) Compare(o Rate) int {
	if r.kind != o.kind {
		return compare(int64(r.kind), int64(o.kind))
	}
	ru, rn := r.Exact()
	ou, on := o.Exact()
	if ru == 0 || ou == 0 {
		return compare(ru, ou)
	}
	return compareProducts(ru, on, ou, rn)
}

// String prints the rate in the shortest form that ParseRate reads as the same Rate.
func (r Rate) String() string {
	if r.kind == 0 {
		return "0"
	}
	period := "/" + formatPeriod(r.per)
	if r.kind != Bytes {
		return format(r.amount, []scale{{" " + r.kind.String(), 1}}, 1) + period
	}
	var bits string
	if r.per == time.Second {
		bits = format(r.amount, bitUnits, 8)
	}
	bytes := format(r.amount, sizeUnits, 1)
	if bits == "" || bytes != "" && len(bytes+period) < len(bits) {
		return bytes + period
	}
	return bits
}

// MarshalText returns String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the text with ParseRate.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

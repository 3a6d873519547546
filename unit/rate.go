package unit

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Bounds of a rate. They keep every product of this package and of the
// limiters within 128 bits, and a float64 token count exact.
const (
	maxAmount = 1 << 43        // 8 TiB, or as many items, per period
	maxPeriod = 366 * day      // "/8784h"
	day       = 24 * time.Hour // "d"
)

// Rate is an amount of something per period, exact: 0.75 messages/s is 3/4 of
// a message per second, 20000 messages/15min keeps its 15 minutes.
//
// The zero Rate counts nothing and allows nothing; a rate of 0 blocks. Rates
// are comparable: two are == if they count the same, as much, per the same
// period.
type Rate struct {
	kind   Kind
	amount fraction // of units, per period
	per    time.Duration
}

// NewRate returns n units of kind per period. It panics if n is negative or
// per is not positive: those are mistakes of the program, not of an operator.
func NewRate(kind Kind, n int64, per time.Duration) Rate {
	if n < 0 || n > maxAmount || per <= 0 || per > maxPeriod {
		panic(fmt.Sprintf("unit: no rate: %d %v per %v", n, kind, per))
	}
	return Rate{kind, fraction{n, 1}, per}
}

// BytesPerSecond returns n bytes per second.
func BytesPerSecond(n int64) Rate { return NewRate(Bytes, n, time.Second) }

// bitUnits and byteUnits are in order of preference when printing.
var bitUnits = []scale{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}, {"tbit", 1e12}}

const rateForm = `a rate is like "20mbit", "64KiB/s", "200 packets/s" or "120 connections/min"`

// ParseRate reads a rate as policy files and tc write it: bits per second
// ("20mbit"), bytes per period ("64KiB/s"), or a count per period
// ("30 messages/s", "20000 msg/15min", "5000 messages/day"). Prefixes of bits and KB, MB, GB are
// powers of 1000, KiB, MiB, GiB of 1024.
func ParseRate(s string) (Rate, error) {
	r, err := parseRate(s)
	if err != nil {
		return Rate{}, fmt.Errorf("%q is not a rate: %w; %s", s, err, rateRemedy(s))
	}
	return r, nil
}

func parseRate(s string) (Rate, error) {
	number, word, err := cutNumber(s)
	if err != nil {
		return Rate{}, err
	}
	if word == "" {
		return Rate{}, errNoUnit
	}
	// tc itself prints "20Mbit"; no other unit looks like it.
	if bit, ok := find(bitUnits, strings.ToLower(word)); ok {
		return newRate(Bytes, number, bit, 8, time.Second)
	}
	word, period, found := strings.Cut(word, "/")
	word = strings.TrimRight(word, " ")
	kind, factor, ok := rateUnit(word)
	switch {
	case word == "":
		return Rate{}, errors.New("it does not say what it counts")
	case word[0] == ',':
		return Rate{}, errors.New("a number has no commas")
	case !ok:
		return Rate{}, fmt.Errorf("%q is no unit of a rate", word)
	}
	if !found {
		return Rate{}, errors.New("it has no period, such as \"/s\"")
	}
	per, err := parsePeriod(period)
	if err != nil {
		return Rate{}, err
	}
	return newRate(kind, number, factor, 1, per)
}

// rateUnit returns what the word before the slash counts, and how many of it.
func rateUnit(word string) (kind Kind, factor int64, ok bool) {
	if size, ok := find(sizeUnits, word); ok {
		return Bytes, size, true
	}
	kind, ok = kindOf(word)
	return kind, 1, ok && kind != Items
}

// newRate returns number*n/d units of kind per period, within the bounds.
func newRate(kind Kind, number fraction, n, d int64, per time.Duration) (Rate, error) {
	amount, err := number.times(n, d)
	if err != nil || amount.num/amount.den > maxAmount {
		return Rate{}, errTooLarge
	}
	r := Rate{kind, amount, per}
	if !r.exact() {
		return Rate{}, errTooPrecise
	}
	return r, nil
}

// exact reports whether the rate's digits can be kept: Exact has room for
// them, and String can print them.
func (r Rate) exact() bool {
	_, ok := mul(int64(r.per), r.amount.den)
	return ok && r.amount.num <= maxAmount*8 && r.finest()%r.amount.den == 0
}

// finest is the largest denominator that can be printed.
func (r Rate) finest() int64 {
	if r.kind == Bytes && r.per == time.Second {
		return 8 * decimals // as bits
	}
	return decimals
}

// periodWords may stand behind the slash for what they are. A day is 24 hours, a week
// seven times as many: calendars and clocks that are put forward have no part in it.
var periodWords = []scale{
	{"second", int64(time.Second)}, {"minute", int64(time.Minute)}, {"hour", int64(time.Hour)},
	{"day", int64(day)}, {"week", int64(7 * day)},
}

// parsePeriod reads what stands behind the slash: "s", "min", "15min", "day".
func parsePeriod(s string) (time.Duration, error) {
	s = strings.TrimLeft(s, " ")
	if s == "" {
		return 0, errors.New("it has no period behind the slash")
	}
	for _, units := range [][]scale{timeUnits, periodWords} {
		if factor, ok := find(units, s); ok {
			return time.Duration(factor), nil
		}
	}
	per, err := parseDuration(s)
	if errors.Is(err, errNoNumber) {
		err = fmt.Errorf("%q is no unit of time", s)
	}
	if err != nil {
		return 0, fmt.Errorf("the period: %w", err)
	}
	if per <= 0 || per > maxPeriod {
		return 0, fmt.Errorf("the period is more than nothing and at most %s", FormatDuration(maxPeriod))
	}
	return per, nil
}

// Kind returns what the rate counts.
func (r Rate) Kind() Kind { return r.kind }

// Period returns the period as it was written: 15 minutes for
// "20000 messages/15min", one second for "20mbit".
func (r Rate) Period() time.Duration { return r.per }

// IsZero reports whether the rate is 0: nothing ever leaves.
func (r Rate) IsZero() bool { return r.amount.num == 0 }

// PerSecond returns the rate in units per second, for people and metrics; it
// is rounded as a float64 is.
func (r Rate) PerSecond() float64 {
	if r.IsZero() {
		return 0
	}
	return float64(r.amount.num) / float64(r.amount.den) / r.per.Seconds()
}

// Exact returns the rate as two integers: units of what it counts take exactly
// ns nanoseconds. Both are 0 for a rate of 0.
func (r Rate) Exact() (units, ns int64) {
	if r.IsZero() {
		return 0, 0
	}
	f := fraction{r.amount.num, int64(r.per) * r.amount.den}.reduced()
	return f.num, f.den
}

// Time returns how long n units take at this rate, rounded up to a nanosecond.
// It saturates at the largest Duration, which is also the answer of a rate of
// 0 for any n above 0.
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

// Units returns how many whole units the rate allows in d, rounded down. It
// saturates at MaxInt64.
func (r Rate) Units(d time.Duration) int64 {
	units, ns := r.Exact()
	if units == 0 || d <= 0 {
		return 0
	}
	n, _ := mulDiv(int64(d), units, ns)
	return n
}

// Below returns the rate less a share of it. Where the exact result has more
// digits than can be kept, it is rounded down: a little slower, never faster.
func (r Rate) Below(headroom Percent) Rate {
	if r.IsZero() || headroom == 0 {
		return r
	}
	part, whole := int64(100*percent-headroom), int64(100*percent)
	below := r
	if amount, err := r.amount.times(part, whole); err == nil {
		if below.amount = amount; below.exact() {
			return below
		}
	}
	for den := r.finest(); den > 0; den /= 10 {
		var ok bool
		if below.amount, ok = r.amount.timesDown(part, whole, den); ok && below.exact() {
			return below
		}
	}
	panic("unit: no rate below " + r.String()) // whole units always fit
}

// Compare returns -1, 0 or +1 as r is slower than, as fast as or faster than o,
// whatever their periods. Rates of different kinds do not compare: the order
// of the kinds is returned.
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

// String prints the rate in the shortest form that ParseRate reads back to the
// same value.
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

// formatPeriod prints what stands behind the slash: "s", "15min", "day".
func formatPeriod(per time.Duration) string {
	switch per {
	case day:
		return "day"
	case 7 * day:
		return "week"
	}
	text := FormatDuration(per)
	if short := strings.TrimPrefix(text, "1"); short[0] > '9' { // "15min" keeps its digits
		return short
	}
	return text
}

// MarshalText is String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRate.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

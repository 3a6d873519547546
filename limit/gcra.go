package limit

import (
	"math"
	"math/bits"
	"time"

	"shaper/unit"
)

// GCRA is the generic cell rate algorithm of ATM, in the form called virtual
// scheduling (ITU-T I.371, Annex A.1; ATM Forum, Traffic Management 4.1,
// af-tm-0121.000). It is a token bucket that remembers one number, the
// theoretical arrival time (TAT): when the bucket is full again. An item of n
// units may leave at t if
//
//	TAT + n/rate <= t + burst/rate, and then TAT = max(TAT, t) + n/rate.
//
// I.371 writes T for 1/rate, and tau for (burst-1)/rate.
//
// Over any window t at most burst + rate*t units leave, to within a nanosecond
// of t. Why: after item j leaves at t(j), TAT is at most t(j) + burst/rate. Since
// item i it has grown from at least t(i), by cost/rate for each item. The
// nanosecond is that of the clock: an item that leaves at the first whole
// nanosecond after TAT counts as leaving at TAT, so rounding errors do not add
// up. An item that is larger than the burst waits for a full bucket and leaves in
// debt; then the bound has that item in place of burst.
//
// The arithmetic is exact, although 1/rate need not be whole nanoseconds: TAT is
// kept as an instant and the units owed from there on. The instant moves only by
// amounts of units that take whole nanoseconds.
type GCRA struct {
	Start
	clock
	rate  unit.Rate
	burst int64
	tat   time.Time // TAT is tat + owed/rate
	owed  int64     // units
	ebbs  ebbs      // low-water marks of the units that it lacks, for Amend
}

// NewGCRA returns a token bucket that is full at now. A burst below 1 counts as 1.
func NewGCRA(now time.Time, rate unit.Rate, burst int64) *GCRA {
	return &GCRA{clock: clock{now}, rate: rate, burst: max(burst, 1), tat: now}
}

// Next implements Limiter. It is exact, also if the units ahead leave one by one.
func (g *GCRA) Next(now time.Time, ahead, n int64) time.Time {
	if g.rate.IsZero() {
		return Never
	}
	then := *g
	then.arrive(now)
	return then.after(plus(then.owed, ahead) - (g.burst - min(n, g.burst)))
}

// Take implements Limiter.
func (g *GCRA) Take(_, now time.Time, n int64) {
	g.arrive(now)
	g.ebb()
	g.owed = plus(g.owed, n)
	g.fold()
}

// Tokens implements TokenBucket.
func (g *GCRA) Tokens(now time.Time) float64 {
	then := *g
	then.arrive(now)
	whole, part, of := then.missing()
	return float64(g.burst-whole) - float64(part)/float64(of)
}

// SetRate implements Limiter. The bucket keeps its tokens, except those above a
// smaller burst. A larger burst fills at the new rate. The result is exact: only
// the time that a part of a unit takes is rounded up to a nanosecond, once.
func (g *GCRA) SetRate(now time.Time, rate unit.Rate, burst int64) {
	if burst = max(burst, 1); rate == g.rate && burst == g.burst {
		return
	}
	g.arrive(now)
	g.ebb() // a larger burst lacks more
	whole, part, of := g.missing()
	if whole = plus(whole, max(burst-g.burst, 0)) - max(g.burst-burst, 0); whole < 0 {
		whole, part = 0, 0 // the smaller burst is full
	}
	g.rate, g.burst, g.tat, g.owed = rate, burst, g.now, whole
	switch units, ns := rate.Exact(); {
	case part == 0:
	case units == 0: // a part takes for ever, as a whole unit does
		g.owed = plus(g.owed, 1)
	default:
		// Rounding up twice is the same as once: ceil(ceil(x/a)/b) = ceil(x/(a*b)).
		wait := ratioUp(ratioUp(part, ns, of), 1, units)
		g.tat = g.now.Add(time.Duration(wait))
	}
	g.fold()
	g.ebb()
}

// ebb notes how many whole units the bucket lacks now; see Token.ebb.
func (g *GCRA) ebb() {
	whole, _, _ := g.missing()
	g.ebbs.note(g.now, whole)
}

// missing returns how many units the bucket lacks now: whole units, and part/of of
// one more.
func (g *GCRA) missing() (whole, part, of int64) {
	units, ns := g.rate.Exact()
	if units == 0 {
		return g.owed, 0, 1
	}
	ahead := int64(g.tat.Sub(g.now))
	if ahead >= 0 {
		whole, part = ratio(ahead, units, ns)
		return plus(whole, g.owed), part, ns
	}
	whole, part = ratio(-ahead, units, ns)
	if part > 0 {
		whole, part = plus(whole, 1), ns-part
	}
	if whole > g.owed { // TAT has passed, by less than a nanosecond
		return 0, 0, ns
	}
	return g.owed - whole, part, ns
}

// ratio returns a*b/c and the remainder; the largest int64 and 0 if the quotient
// overflows. No argument is negative, and c is positive.
func ratio(a, b, c int64) (whole, rest int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi < uint64(c) {
		if q, r := bits.Div64(hi, lo, uint64(c)); q <= math.MaxInt64 {
			return int64(q), int64(r)
		}
	}
	return math.MaxInt64, 0
}

// ratioUp is ratio rounded up.
func ratioUp(a, b, c int64) int64 {
	whole, rest := ratio(a, b, c)
	return plus(whole, min(rest, 1))
}

// Memory implements Limiter.
func (g *GCRA) Memory(now time.Time) (m Memory, whole bool) {
	g.arrive(now)
	return Memory{Until: g.after(g.owed), At: g.tat, Used: [2]int64{g.owed}}, true
}

// Remember implements Limiter. A negative debt, as from a file that somebody has edited, counts as none.
func (g *GCRA) Remember(m Memory) { g.tat, g.owed, g.ebbs = m.At, max(m.Used[0], 0), g.ebbs[:0] }

// arrive moves TAT to now if TAT has passed.
func (g *GCRA) arrive(now time.Time) {
	if now = g.see(now); now.After(g.after(g.owed)) {
		g.tat, g.owed = now, 0
	}
}

// after returns the moment n units after tat, or before it if n is negative,
// rounded up to a nanosecond.
func (g *GCRA) after(n int64) time.Time {
	at := g.tat
	if n < 0 {
		units, ns := g.rate.Exact()
		whole := (units - 1 - n) / units
		at = at.Add(-times(whole, time.Duration(ns)))
		n += whole * units
	}
	return After(at, g.rate.Time(n))
}

// fold keeps owed small: it moves tat forward by amounts of units that take whole
// nanoseconds, to at most a century or so after now.
func (g *GCRA) fold() {
	units, ns := g.rate.Exact()
	if units == 0 {
		return
	}
	whole := min(g.owed/units, max(math.MaxInt64/2-int64(g.tat.Sub(g.now)), 0)/ns)
	g.tat = g.tat.Add(time.Duration(whole * ns))
	g.owed -= whole * units
}

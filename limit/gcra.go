package limit

import (
	"math"
	"math/big"
	"math/bits"
	"time"

	"shaper/unit"
)

// GCRA is the generic cell rate algorithm of ATM, in the form that it calls
// virtual scheduling (ITU-T I.371, Annex A.1; ATM Forum, Traffic Management 4.1,
// af-tm-0121.000). It is a token bucket that remembers one number, the
// theoretical arrival time (TAT): when the bucket is full again. An item of n
// units may leave at t if
//
//	TAT + n/rate <= t + burst/rate, and then TAT = max(TAT, t) + n/rate.
//
// I.371 writes T for 1/rate, and tau for (burst-1)/rate.
//
// Over any window t at most burst + rate*t units leave, to within a nanosecond
// of t. Why: after item j left at t(j), TAT is at most t(j) + burst/rate, and
// since item i it has grown from at least t(i), by cost/rate for each item. The
// nanosecond is that of the clock: an item that leaves at the first whole one
// behind TAT counts as leaving at TAT, so that no rounding adds up. An item
// larger than the burst waits for a full bucket and leaves in debt; the bound
// is then that item instead of burst.
//
// The arithmetic is exact: 1/rate need not be whole nanoseconds, so TAT is kept
// as an instant and the units that are owed from there on. It moves by whole
// nanoseconds only where the units of them are whole too.
type GCRA struct {
	clock
	rate  unit.Rate
	burst int64
	tat   time.Time // TAT is tat + owed/rate
	owed  int64     // units
}

// NewGCRA returns a full bucket as of now. A burst below 1 is 1.
func NewGCRA(now time.Time, rate unit.Rate, burst int64) *GCRA {
	return &GCRA{clock: clock{now}, rate: rate, burst: max(burst, 1), tat: now}
}

// Next implements Limiter. It is exact, also behind units ahead that leave one
// by one.
func (g *GCRA) Next(now time.Time, ahead, n int64) time.Time {
	if g.rate.IsZero() {
		return Never
	}
	then := *g
	then.arrive(now)
	return then.behind(plus(then.owed, ahead) - (g.burst - min(n, g.burst)))
}

// Take implements Limiter.
func (g *GCRA) Take(_, now time.Time, n int64) {
	g.arrive(now)
	g.owed = plus(g.owed, n)
	g.fold()
}

// SetRate implements Limiter. The tokens that are there stay, but for those
// above a smaller burst; a larger burst fills at the new rate.
func (g *GCRA) SetRate(now time.Time, rate unit.Rate, burst int64) {
	if burst = max(burst, 1); rate == g.rate && burst == g.burst {
		return
	}
	g.arrive(now)
	if g.rerate(rate, burst) {
		return
	}
	missing := g.missing()
	if missing.Add(missing, big.NewRat(burst-g.burst, 1)); missing.Sign() < 0 {
		missing.SetInt64(0)
	}
	g.rate, g.burst = rate, burst
	g.miss(missing)
}

// rerate is SetRate where its numbers have 64 bits, as they mostly do: false where
// one has not.
func (g *GCRA) rerate(rate unit.Rate, burst int64) bool {
	units, ns := g.rate.Exact()
	toUnits, toNs := rate.Exact()
	left := int64(g.tat.Sub(g.now))
	hi, lo := bits.Mul64(uint64(left), uint64(units))
	perPart, each := bits.Mul64(uint64(ns), uint64(toUnits))
	if left < 0 || units == 0 || toUnits == 0 || hi >= uint64(ns) || perPart > 0 || each > math.MaxInt64 {
		return false
	}
	whole, part := bits.Div64(hi, lo, uint64(ns)) // units that are missing, and of another one part/ns
	if whole > math.MaxInt64/4 || g.owed > math.MaxInt64/4 || burst > math.MaxInt64/4 || g.burst > math.MaxInt64/4 {
		return false
	}
	missing := int64(whole) + g.owed + burst - g.burst
	hi, lo = bits.Mul64(part, uint64(toNs))
	if missing < 0 {
		missing, hi, lo = 0, 0, 0
	}
	if hi >= each {
		return false
	}
	wait, rest := bits.Div64(hi, lo, each)
	if rest > 0 {
		wait++
	}
	g.rate, g.burst, g.tat, g.owed = rate, burst, g.now.Add(time.Duration(wait)), missing
	g.fold()
	return true
}

// Memory implements Limiter.
func (g *GCRA) Memory(now time.Time) (m Memory, whole bool) {
	g.arrive(now)
	return Memory{Until: g.behind(g.owed), At: g.tat, Used: [2]int64{g.owed}}, true
}

// Remember implements Limiter.
func (g *GCRA) Remember(m Memory) { g.tat, g.owed = m.At, m.Used[0] }

// arrive moves TAT to now, if it has passed.
func (g *GCRA) arrive(now time.Time) {
	if now = g.see(now); now.After(g.behind(g.owed)) {
		g.tat, g.owed = now, 0
	}
}

// behind returns the moment n units behind tat, or before it where n is
// negative, rounded up to a nanosecond.
func (g *GCRA) behind(n int64) time.Time {
	at := g.tat
	if n < 0 {
		units, ns := g.rate.Exact()
		whole := (units - 1 - n) / units
		at = at.Add(-times(whole, time.Duration(ns)))
		n += whole * units
	}
	return After(at, g.rate.Time(n))
}

// fold moves tat on by whole multiples of units, which take whole nanoseconds,
// and so keeps owed small; but no further than a century or so.
func (g *GCRA) fold() {
	units, ns := g.rate.Exact()
	if units == 0 {
		return
	}
	whole := min(g.owed/units, max(math.MaxInt64/2-int64(g.tat.Sub(g.now)), 0)/ns)
	g.tat = g.tat.Add(time.Duration(whole * ns))
	g.owed -= whole * units
}

// missing returns how many units the bucket lacks now, exactly.
func (g *GCRA) missing() *big.Rat {
	missing := big.NewRat(g.owed, 1)
	if units, ns := g.rate.Exact(); units > 0 {
		left := big.NewRat(int64(g.tat.Sub(g.now)), 1)
		missing.Add(missing, left.Mul(left, big.NewRat(units, ns)))
	}
	if missing.Sign() < 0 { // by less than a nanosecond
		missing.SetInt64(0)
	}
	return missing
}

// miss makes so many units missing now. What a part of one takes is rounded up
// to a nanosecond; under a rate of 0 it takes for ever, so a whole one is missing.
func (g *GCRA) miss(missing *big.Rat) {
	whole := new(big.Int).Quo(missing.Num(), missing.Denom())
	part := missing.Sub(missing, new(big.Rat).SetInt(whole))
	if g.tat, g.owed = g.now, math.MaxInt64; whole.IsInt64() {
		g.owed = whole.Int64()
	}
	switch units, ns := g.rate.Exact(); {
	case part.Sign() == 0:
	case units == 0:
		g.owed = plus(g.owed, 1)
	default:
		part.Mul(part, big.NewRat(ns, units))
		up := new(big.Int).Add(part.Num(), new(big.Int).Sub(part.Denom(), big.NewInt(1)))
		g.tat = g.now.Add(time.Duration(up.Quo(up, part.Denom()).Int64()))
	}
	g.fold()
}

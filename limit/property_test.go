package limit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/unit"
)

// anyRate draws from a tenth per second to 8 TiB/s.
func anyRate(t *rapid.T) unit.Rate {
	amount := int64(1) << rapid.IntRange(0, 42).Draw(t, "magnitude")
	amount += rapid.Int64Range(0, amount).Draw(t, "more")
	per := rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second}).Draw(t, "per")
	return unit.NewRate(unit.Bytes, amount, per)
}

// allows returns rate*d in units, exactly.
func allows(rate unit.Rate, d time.Duration) *big.Rat {
	units, ns := rate.Exact()
	return new(big.Rat).Mul(big.NewRat(units, ns), new(big.Rat).SetInt64(int64(d)))
}

// bucket is the model: exact fractions instead of float64.
type bucket struct {
	rate   unit.Rate
	burst  *big.Rat
	tokens *big.Rat
	now    time.Duration
}

func (b *bucket) advance(now time.Duration) {
	b.tokens.Add(b.tokens, allows(b.rate, now-b.now))
	if b.now = now; b.tokens.Cmp(b.burst) > 0 {
		b.tokens.Set(b.burst)
	}
}

// after returns how long after now n tokens are there, rounded up.
func (b *bucket) after(n int64) time.Duration {
	missing := new(big.Rat).Sub(big.NewRat(n, 1), b.tokens)
	if missing.Sign() <= 0 {
		return 0
	}
	missing.Quo(missing, allows(b.rate, 1))
	ns, rest := new(big.Int).QuoRem(missing.Num(), missing.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		ns.Add(ns, big.NewInt(1))
	}
	return time.Duration(ns.Int64())
}

// precision returns two nanoseconds, or how long it takes to fill what a
// float64 of the size of the burst cannot tell apart after some additions.
func precision(rate unit.Rate, burst int64) time.Duration {
	ulp := math.Nextafter(float64(burst), math.MaxFloat64) - float64(burst)
	return time.Duration(2 + 20*ulp/rate.PerSecond()*1e9)
}

// TestTokenIsTheModel draws traces of departures at and after Next and
// expects each at the instant of the model, to within precision, and that
// rate.Limiter agrees that it may leave then.
func TestTokenIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(t)
		burst := rapid.Int64Range(1, 1<<20).Draw(t, "burst")
		l := NewToken(start, rate, burst)
		model := bucket{rate, big.NewRat(burst, 1), big.NewRat(burst, 1), 0}
		for range rapid.IntRange(1, 40).Draw(t, "items") {
			n := rapid.Int64Range(1, burst).Draw(t, "n")
			got, want := l.Next(at(model.now), 0, n).Sub(at(model.now)), model.after(n)
			if slop := precision(rate, burst); got < want-slop || got > want+slop {
				t.Fatalf("%v, burst %d: %d may leave after %v, want %v", rate, burst, n, got, want)
			}
			model.advance(model.now + got + time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "late")))
			model.tokens.Sub(model.tokens, big.NewRat(n, 1))
			if left := at(model.now); l.bucket.TokensAt(left) < float64(n)-rate.PerSecond()/1e9 {
				t.Fatalf("%v, burst %d: %d leave although %v tokens are there", rate, burst, n, l.bucket.TokensAt(left))
			}
			l.Take(start, at(model.now), n)
		}
	})
}

// TestTokenHoldsInEveryWindow mixes in stale times and items larger than the
// burst.
func TestTokenHoldsInEveryWindow(t *testing.T) {
	type departure struct {
		at time.Duration
		n  int64
	}
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(t)
		burst := rapid.Int64Range(1, 1<<20).Draw(t, "burst")
		largest := burst
		l, now := NewToken(start, rate, burst), start
		var trace []departure
		for range rapid.IntRange(1, 40).Draw(t, "items") {
			n := rapid.Int64Range(1, 2*burst).Draw(t, "n")
			stale := now.Add(-time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "stale")))
			if next := l.Next(stale, 0, n); next.After(now) {
				now = next
			}
			l.Take(now, stale, 0) // must not turn the clock back
			l.Take(now, now, n)
			trace = append(trace, departure{now.Sub(start), n})
			largest = max(largest, n)
		}
		for i := range trace {
			sum := int64(0)
			for _, d := range trace[i:] {
				sum += d.n
				bound := allows(rate, d.at-trace[i].at+1)
				if bound.Add(bound, big.NewRat(largest, 1)); bound.Cmp(big.NewRat(sum, 1)) < 0 {
					t.Fatalf("%v, burst %d: %d left within %v", rate, burst, sum, d.at-trace[i].at)
				}
			}
		}
	})
}

// TestTokenNeverDrifts lets 10^9 units leave ten thousand at a time, each as
// soon as it may. The bucket is deeper than that: a full one loses what comes
// while the clock goes on to the next whole nanosecond.
func TestTokenNeverDrifts(t *testing.T) {
	const items, n = 100_000, 10_000
	for _, rate := range []unit.Rate{
		perSecond(1), perSecond(7), perSecond(999_983), unit.BytesPerSecond(1_000_000_007), unit.NewRate(unit.Packets, 20000, 15*time.Minute),
	} {
		l, now := NewToken(start, rate, 2*n), start
		for range items {
			if next := l.Next(now, 0, n); next.After(now) {
				now = next
			}
			l.Take(now, now, n)
		}
		exact := new(big.Rat).Quo(big.NewRat((items-2)*n, 1), allows(rate, 1)) // two left at once
		off := new(big.Rat).SetInt64(int64(now.Sub(start)))
		if off.Sub(off, exact).Abs(off).Cmp(big.NewRat(1000, 1)) > 0 {
			t.Errorf("%v: after %d units the schedule is off by %v ns", rate, items*n, off.FloatString(0))
		}
	}
}

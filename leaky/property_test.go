package leaky

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/unit"
)

// anyRate draws a rate from 1 a year to 8 TiB/s, small rates as often as large ones.
func anyRate(kind unit.Kind) *rapid.Generator[unit.Rate] {
	return rapid.Custom(func(t *rapid.T) unit.Rate {
		amount := int64(1) << rapid.IntRange(0, 42).Draw(t, "magnitude")
		amount += rapid.Int64Range(0, amount).Draw(t, "more")
		per := rapid.SampledFrom([]time.Duration{
			time.Second, 7 * time.Second, 15 * time.Minute, 8784 * time.Hour,
		}).Draw(t, "per")
		return unit.NewRate(kind, amount, per)
	})
}

// lateness draws how late something happens: not at all, by some of slack, by up to
// three times slack, or by a minute.
func lateness(slack time.Duration) *rapid.Generator[time.Duration] {
	slack = min(max(slack, 1), time.Hour)
	return rapid.OneOf(
		rapid.Just(time.Duration(0)),
		rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, 3*int64(slack)).Draw(t, "late"))
		}),
		rapid.Just(time.Minute),
	)
}

// horizon is where a trace ends: the model counts nanoseconds in an int64.
var horizon = start.Add(200 * 365 * 24 * time.Hour)

type departure struct {
	at time.Duration
	n  int64
}

// allows returns rate*d in units, exactly.
func allows(rate unit.Rate, d time.Duration) *big.Rat {
	units, ns := rate.Exact()
	if units == 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Mul(big.NewRat(units, ns), new(big.Rat).SetInt64(int64(d)))
}

// TestBucketHoldsInEveryWindow makes departures late by at most Slack, or by any time,
// and holds the promise of Bucket in every window.
func TestBucketHoldsInEveryWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(unit.Bytes).Draw(t, "rate")
		anyLate := rapid.Bool().Draw(t, "any lateness")
		var trace []departure
		b, now := NewBucket(rate), start
		for range rapid.IntRange(1, 40).Draw(t, "items") {
			n := rapid.Int64Range(1, Piece(rate)).Draw(t, "n")
			if next := b.Next(now, 0, n); next.After(now) {
				now = next
			}
			late := lateness(b.slack).Draw(t, "late")
			if !anyLate {
				late = min(late, b.slack)
			}
			if now = now.Add(late); now.After(horizon) {
				break
			}
			earliest := int64(0)
			if !anyLate && now.Sub(b.Next(now, 0, n)) > b.slack {
				earliest = int64(max(now.Sub(start)-b.slack, 0)) // it has been idle
			}
			ready := time.Duration(rapid.Int64Range(earliest, int64(now.Sub(start))).Draw(t, "ready"))
			b.Take(start.Add(ready), now, n)
			trace = append(trace, departure{now.Sub(start), n})
			if i := len(trace) - rapid.IntRange(1, 3).Draw(t, "amends"); i >= 0 {
				back := rapid.Int64Range(0, trace[i].n).Draw(t, "back")
				limit.Amend(b, now, start.Add(trace[i].at), -back)
				trace[i].n -= back
			}
		}
		quantum := big.NewRat(Quantum(rate), 1)
		checkWindows(t, trace, func(window time.Duration) *big.Rat {
			bound := allows(rate, window)
			if anyLate {
				faster := new(big.Rat).Mul(bound, big.NewRat(16, 15))
				longer := allows(rate, window+maxLag)
				bound = least(faster, longer)
			}
			return bound.Add(bound, quantum)
		})
	})
}

// TestBucketAmendIsTheRightCharge corrects what items were charged, before the next one leaves, and
// compares the bucket with one that has charged rightly from the start.
func TestBucketAmendIsTheRightCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(unit.Bytes).Draw(t, "rate")
		amended, rightly, now := NewBucket(rate), NewBucket(rate), start
		for range rapid.IntRange(1, 30).Draw(t, "items") {
			n := rapid.Int64Range(1, 1<<rapid.IntRange(0, 43).Draw(t, "magnitude")).Draw(t, "n")
			next := rightly.Next(now, 0, n)
			if got := amended.Next(now, 0, n); !got.Equal(next) {
				t.Fatalf("%v: the next item leaves at %v, want %v", rate, got.Sub(start), next.Sub(start))
			}
			if next.After(now) {
				now = next
			}
			if now = now.Add(lateness(amended.slack).Draw(t, "late")); now.After(horizon) {
				break
			}
			since := start.Add(time.Duration(rapid.Int64Range(0, int64(now.Sub(start))).Draw(t, "ready")))
			back := rapid.Int64Range(0, n).Draw(t, "back")
			amended.Take(since, now, n)
			rightly.Take(since, now, n-back)
			limit.Amend(amended, now.Add(lateness(amended.slack).Draw(t, "answered")), now, -back)
		}
	})
}

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// checkWindows fails if more than the bound left in any window. A window begins and ends
// with a departure, and contains both.
func checkWindows(t *rapid.T, trace []departure, boundOf func(window time.Duration) *big.Rat) {
	for i := range trace {
		sum := int64(0)
		for _, d := range trace[i:] {
			sum += d.n
			window := d.at - trace[i].at
			if bound := boundOf(window); bound.Cmp(big.NewRat(sum, 1)) < 0 {
				t.Fatalf("%d bytes left within %v, more than %v", sum, window, bound.FloatString(3))
			}
		}
	}
}

// TestBucketNeverDrifts lets a million pieces leave, each late by less than Slack. It
// expects the last one exactly on schedule.
func TestBucketNeverDrifts(t *testing.T) {
	const items = 1_000_000
	for _, rate := range []unit.Rate{
		unit.BytesPerSecond(3), unit.BytesPerSecond(999_999_937), unit.BytesPerSecond(1 << 43),
		unit.NewRate(unit.Bytes, 7, 15*time.Minute),
	} {
		n := min(Piece(rate), 1+rate.Units(time.Hour))
		b, now, sum := NewBucket(rate), start, int64(0)
		for i := range items {
			late := b.slack * time.Duration(i%5) / 5
			at := b.Next(now, 0, n).Add(late)
			if i == 0 {
				at = start
			}
			b.Take(start, at, n) // something was ready all the time
			now, sum = at, sum+n
		}
		exact := new(big.Rat).Quo(big.NewRat(sum, 1), allows(rate, 1))
		got := new(big.Rat).SetInt64(int64(b.Next(now, 0, 1).Sub(start)))
		if diff := got.Sub(got, exact); diff.Sign() < 0 || diff.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Errorf("%v: after %d bytes the schedule is off by %v ns", rate, sum, diff.FloatString(3))
		}
	}
}

// TestBucketSetRateIsTheModel compares a bucket with a model in exact fractions while
// the rate changes. No departure is late.
func TestBucketSetRateIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(unit.Bytes).Draw(t, "rate")
		b, now, owed, slop := NewBucket(rate), start, new(big.Rat), new(big.Rat)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			pause := time.Duration(rapid.Int64Range(0, 1<<rapid.IntRange(0, 50).Draw(t, "scale")).Draw(t, "pause"))
			now = now.Add(pause)
			owed.Sub(owed, allows(rate, pause))
			if owed.Sign() < 0 {
				owed.SetInt64(0)
			}
			if next := b.Next(now, 0, 1); !next.After(now) {
				n := int64(1) << rapid.IntRange(0, 43).Draw(t, "n")
				b.Take(now, now, n)
				owed.Add(owed, big.NewRat(n, 1))
			}
			if rapid.Bool().Draw(t, "change") {
				slop.Add(slop, allows(rate, 1)).Add(slop, big.NewRat(1, 1))
				rate = rapid.OneOf(anyRate(unit.Bytes), rapid.Just(unit.BytesPerSecond(0))).Draw(t, "rate")
				b.SetRate(now, rate, 0)
			}
			checkOwed(t, b, now, owed, slop)
		}
	})
}

// checkOwed fails unless b owes what the model owes, to within a nanosecond.
// Each change of the rate may add a byte and a nanosecond of the old rate.
func checkOwed(t *rapid.T, b *Bucket, now time.Time, owed, slop *big.Rat) {
	next := b.Next(now, 0, 1)
	if next == limit.Never || next.After(horizon) {
		return
	}
	wait := next.Sub(now)
	most := allows(b.rate, max(wait, 0)+1)
	if most.Add(most, slop).Cmp(owed) < 0 {
		t.Fatalf("%v: the next item may leave after %v, but %v bytes are owed", b.rate, wait, owed.FloatString(3))
	}
	least := allows(b.rate, wait-1)
	if least.Sub(least, slop); wait > 0 && least.Cmp(owed) >= 0 {
		t.Fatalf("%v: the next item waits %v for %v bytes", b.rate, wait, owed.FloatString(3))
	}
}

// TestExtremes gives both limiters rates and costs that no policy should have. A time
// that would overflow is Never.
func TestExtremes(t *testing.T) {
	for _, rate := range []unit.Rate{
		unit.NewRate(unit.Bytes, 1, 8784*time.Hour), unit.BytesPerSecond(0),
		unit.BytesPerSecond(1 << 43), unit.NewRate(unit.Bytes, 1<<43, 1), unit.NewRate(unit.Bytes, 1<<43-1, 8784*time.Hour),
	} {
		for _, l := range []limit.Limiter{NewBucket(rate), NewGap(rate)} {
			before := l.Next(start, 0, 1)
			for range 100 {
				l.Take(start, start, 1<<43)
				next := l.Next(start, math.MaxInt64>>2, 1<<43)
				if next.Before(before) || next.After(limit.Never) {
					t.Fatalf("%v: %T lets the next item leave at %v, which it put at %v before", rate, l, next, before)
				}
				before = next
			}
			limit.Amend(l, start, start, -1<<43)
			l.SetRate(start, unit.BytesPerSecond(1), 0)
			l.SetRate(start.Add(-time.Hour), rate, 0)
		}
	}
}

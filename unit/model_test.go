package unit

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// genNumber draws a decimal that an operator may write, up to the bounds of a rate.
var genNumber = rapid.Custom(func(t *rapid.T) string {
	whole := rapid.OneOf(rapid.Int64Range(0, 999), rapid.Int64Range(0, maxAmount)).Draw(t, "whole")
	digits := rapid.IntRange(0, maxDecimals).Draw(t, "digits")
	if digits == 0 {
		return fmt.Sprint(whole)
	}
	return fmt.Sprintf("%d.%0*d", whole, digits, rapid.Int64Range(0, int64(math.Pow10(digits))-1).Draw(t, "decimals"))
})

// genRate draws any rate that ParseRate accepts.
var genRate = rapid.Custom(func(t *rapid.T) Rate {
	word := rapid.SampledFrom([]string{
		"bit", "kbit", "mbit", "gbit", "B/s", "KiB/s", "MB/min", "GiB/h", " messages/s",
		" packets/15min", " connections/24h", " messages/8784h", " packets/ms", "B/ns",
	}).Draw(t, "unit")
	r, err := ParseRate(genNumber.Draw(t, "number") + word)
	if err != nil {
		t.Skip(err)
	}
	return r
})

// genBelow draws a rate less a headroom.
var genBelow = rapid.Custom(func(t *rapid.T) Rate {
	return genRate.Draw(t, "rate").Below(genPercent.Draw(t, "headroom"))
})

var genPercent = rapid.Custom(func(t *rapid.T) Percent {
	return Percent(rapid.Int64Range(0, int64(100*percent)-1).Draw(t, "percent"))
})

// value returns the model of a rate: units per nanosecond.
func value(r Rate) *big.Rat {
	units, ns := r.Exact()
	if ns == 0 {
		return new(big.Rat)
	}
	return big.NewRat(units, ns)
}

// saturate returns the model's answer, or MaxInt64 if an int64 cannot hold it.
func saturate(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func TestRateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.OneOf(genRate, genBelow).Draw(t, "rate")
		back, err := ParseRate(r.String())
		if err != nil || back != r {
			t.Fatalf("%+v prints as %q, which reads as %+v, %v", r, r, back, err)
		}
	})
}

func TestSizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := Size(rapid.Int64Range(0, maxAmount).Draw(t, "size"))
		if back, err := ParseSize(n.String()); err != nil || back != n {
			t.Fatalf("%d prints as %q, which reads as %d, %v", int64(n), n, int64(back), err)
		}
	})
}

func TestDurationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Min(0).Draw(t, "duration"))
		if back, err := ParseDuration(d.String()); err != nil || back != d {
			t.Fatalf("%d prints as %q, which reads as %d, %v", int64(d), d, int64(back), err)
		}
	})
}

func TestPercentRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genPercent.Draw(t, "percent")
		if back, err := ParsePercent(p.String()); err != nil || back != p {
			t.Fatalf("%d prints as %q, which reads as %d, %v", int64(p), p, int64(back), err)
		}
	})
}

// Parsing loses no digit.
func TestParseRateIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := genNumber.Draw(t, "number")
		r, err := ParseRate(number + " messages/min")
		if err != nil {
			t.Skip(err)
		}
		want, _ := new(big.Rat).SetString(number)
		want.Quo(want, big.NewRat(int64(time.Minute), 1))
		if value(r).Cmp(want) != 0 {
			t.Fatalf("%q is %v, want %v", number, value(r), want)
		}
	})
}

func TestRateTimeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.OneOf(genRate, genBelow).Draw(t, "rate")
		n := rapid.Int64Min(0).Draw(t, "n")
		want := int64(math.MaxInt64)
		if v := value(r); n == 0 {
			want = 0
		} else if v.Sign() > 0 {
			ns := new(big.Rat).Quo(new(big.Rat).SetInt64(n), v)
			up := new(big.Int).Add(ns.Num(), ns.Denom())
			want = saturate(up.Quo(up.Sub(up, big.NewInt(1)), ns.Denom()))
		}
		if got := r.Time(n); int64(got) != want {
			t.Fatalf("%v: %d take %d, want %d", r, n, int64(got), want)
		}
	})
}

func TestRateUnitsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.OneOf(genRate, genBelow).Draw(t, "rate")
		d := rapid.Int64Min(0).Draw(t, "ns")
		units := new(big.Rat).Mul(new(big.Rat).SetInt64(d), value(r))
		want := saturate(new(big.Int).Quo(units.Num(), units.Denom()))
		if got := r.Units(time.Duration(d)); got != want {
			t.Fatalf("%v: %v allow %d, want %d", r, time.Duration(d), got, want)
		}
		// The units of a time take no longer than that time.
		if got := r.Time(r.Units(time.Duration(d))); got > time.Duration(d) {
			t.Fatalf("%v: the units of %v take %v", r, time.Duration(d), got)
		}
	})
}

func TestRateCompareModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genBelow.Draw(t, "a"), genBelow.Draw(t, "b")
		if a.Kind() != b.Kind() {
			t.Skip("kinds do not compare")
		}
		if got, want := a.Compare(b), value(a).Cmp(value(b)); got != want {
			t.Fatalf("%v against %v is %d, want %d", a, b, got, want)
		}
	})
}

// Below is never faster than exact arithmetic. It is slower by at most the last digit that a
// Rate can hold: a billionth of a unit, or more over long periods.
func TestRateBelowModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, headroom := genRate.Draw(t, "rate"), genPercent.Draw(t, "headroom")
		got := r.Below(headroom)
		want := new(big.Rat).Mul(value(r), big.NewRat(int64(100*percent-headroom), int64(100*percent)))
		lost := new(big.Rat).Sub(want, value(got))
		if lost.Sign() < 0 {
			t.Fatalf("%v less %v is faster: %v", r, headroom, got)
		}
		if got.Period() != r.Period() || got.Kind() != r.Kind() {
			t.Fatalf("%v less %v is %v", r, headroom, got)
		}
		perPeriod := lost.Mul(lost, big.NewRat(int64(r.Period()), 1))
		digit := big.NewRat(1, max(1, min(decimals, math.MaxInt64/int64(r.Period()))/10))
		coarse := new(big.Rat).Quo(new(big.Rat).Mul(want, big.NewRat(int64(r.Period()), 1)), big.NewRat(maxAmount/2, 1))
		if perPeriod.Cmp(digit) > 0 && perPeriod.Cmp(coarse) > 0 {
			t.Fatalf("%v less %v is %v: %v per period too slow", r, headroom, got, perPeriod.FloatString(12))
		}
	})
}

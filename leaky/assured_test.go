package leaky

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/unit"
)

func messages(n int64) unit.Rate { return unit.NewRate(unit.Messages, n, time.Second) }

// TestAssuredMakesUpForWaiting serves a class late each time. It always has something
// ready, so it gets its assured rate all the same.
func TestAssuredMakesUpForWaiting(t *testing.T) {
	const slot = 37 * time.Millisecond
	a, served := NewAssured(start, messages(7)), 0
	for now := start; now.Before(start.Add(100 * time.Second)); now = now.Add(slot) {
		if !a.Next().After(now) {
			a.Take(start, now, 1)
			served++
		}
	}
	if served < 700 || served > 701 {
		t.Errorf("%d items were within 7/s in 100 s, want 700", served)
	}
}

// TestAssuredIdleEarnsNothing holds that after a pause only one item is within the rate.
func TestAssuredIdleEarnsNothing(t *testing.T) {
	a, now := NewAssured(start, messages(10)), start.Add(time.Hour)
	a.Take(now, now, 1)
	if got := a.Next(); !got.Equal(now.Add(100 * time.Millisecond)) {
		t.Errorf("the next item is within the rate at %v", got)
	}
}

// TestAssuredCredit holds that a class which has waited for an hour makes up for one
// second, or for 16 of its largest items if these take longer.
func TestAssuredCredit(t *testing.T) {
	for _, c := range []struct {
		rate unit.Rate
		want int
	}{{messages(100), 101}, {messages(10), 17}, {unit.NewRate(unit.Messages, 1, time.Minute), 17}} {
		a, now, served := NewAssured(start, c.rate), start.Add(time.Hour), 0
		for ; !a.Next().After(now); served++ {
			a.Take(start, now, 1)
		}
		if served != c.want {
			t.Errorf("%d items leave at once within %v, want %d", served, c.rate, c.want)
		}
	}
}

func TestAssuredSetRate(t *testing.T) {
	a := NewAssured(start, messages(1))
	a.Take(start, start, 10)
	a.SetRate(start.Add(time.Second), messages(1)) // changes nothing
	a.SetRate(start.Add(time.Second), messages(9))
	if got := a.Next(); !got.Equal(start.Add(2 * time.Second)) {
		t.Errorf("nine of ten items have drained at %v, want 2 s", got)
	}
	if got := a.After(start, 9); !got.Equal(start.Add(3 * time.Second)) {
		t.Errorf("nine more will have left at %v, want 3 s", got)
	}
	if got := a.After(start.Add(time.Hour), 9); !got.Equal(start.Add(time.Hour + time.Second)) {
		t.Errorf("an hour later, nine will have left at %v, want one second after that", got)
	}
	a.SetRate(start, messages(0))
	if got := a.Next(); got != limit.Never {
		t.Errorf("a class is within an assured rate of 0 at %v", got)
	}
}

// TestAssuredNeverDrifts takes a thousand items and expects the exact schedule.
func TestAssuredNeverDrifts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(unit.Messages).Draw(t, "rate")
		a, now := NewAssured(start, rate), start
		sum := int64(0)
		for range 1000 {
			n := rapid.Int64Range(1, 1000).Draw(t, "n")
			a.Take(start, now, n)
			if sum += n; a.Next().After(horizon) {
				t.Skip("takes too long")
			}
			now = a.Next()
		}
		exact := new(big.Rat).Quo(big.NewRat(sum, 1), allows(rate, 1))
		got := new(big.Rat).SetInt64(int64(now.Sub(start)))
		if diff := got.Sub(got, exact); diff.Sign() < 0 || diff.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Errorf("%v: after %d the schedule is off by %v ns", rate, sum, diff.FloatString(3))
		}
	})
}

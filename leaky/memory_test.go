package leaky

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/unit"
)

// A new bucket or gap that remembers an old one goes on as that one would, at the same
// rate and at another rate. From Until on, forgetting changes nothing.
func TestMemoryGoesOn(t *testing.T) {
	for name, one := range map[string]struct {
		kind unit.Kind
		make func(unit.Rate) limit.Limiter
	}{
		"bucket": {unit.Bytes, func(r unit.Rate) limit.Limiter { return NewBucket(r) }},
		"gap":    {unit.Packets, func(r unit.Rate) limit.Limiter { return NewGap(r) }},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rate, now := anyRate(one.kind).Draw(t, "rate"), time.Unix(1000, 0)
				if rate.Time(100_000) > horizon.Sub(start) {
					return // a Duration cannot hold the debt
				}
				pause := lateness(rate.Time(100))
				l := one.make(rate)
				for range rapid.IntRange(0, 20).Draw(t, "items") {
					now = leave(l, now.Add(pause.Draw(t, "pause")), rapid.Int64Range(1, 3000).Draw(t, "n"))
				}
				now = now.Add(pause.Draw(t, "pause"))
				m, whole := l.Memory(now)
				if !whole {
					t.Fatal("the memory is not whole")
				}
				next, fresh := one.make(rate), one.make(rate)
				next.Remember(m)
				if !now.Before(m.Until) {
					if got := fresh.Next(now, 0, 1); got.After(now) || next.Next(now, 0, 1).After(now) {
						t.Fatalf("Until is %v, but at %v a new one waits until %v, or the old one still waits", m.Until, now, got)
					}
				} else if at := l.Next(now, 0, 1); at != m.Until {
					t.Fatalf("Until is %v, but the next item leaves at %v", m.Until, at)
				}
				if rapid.Bool().Draw(t, "set") {
					other := anyRate(one.kind).Draw(t, "other")
					l.SetRate(now, other, 0)
					next.SetRate(now, other, 0)
				}
				for range 5 {
					n := rapid.Int64Range(1, 3000).Draw(t, "n")
					want, got := leave(l, now, n), leave(next, now, n)
					if got != want {
						t.Fatalf("%d leave at %v, want %v as before", n, got, want)
					}
					now = want.Add(pause.Draw(t, "pause"))
				}
			})
		})
	}
}

// leave lets n units leave as soon as they may from now on, and returns when.
func leave(l limit.Limiter, now time.Time, n int64) time.Time {
	if next := l.Next(now, 0, n); next.After(now) && next != limit.Never {
		now = next
	}
	l.Take(now, now, n)
	return now
}

package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A new limiter that remembers an old one goes on as that one would: never sooner, and
// later only by rounding.
func TestMemoryGoesOn(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s := anySetting(t)
		l, now := busy(t, a, s)
		m, whole := l.Memory(at(now))
		if !whole {
			return
		}
		now += anyPause(t, s)
		next := a.make(at(now), s)
		next.Remember(m)
		for range rapid.IntRange(1, 20).Draw(t, "further") {
			n := anyCost(t, 2*a.whole(s))
			want, got := leave(l, now, n), leave(next, now, n)
			if slop := a.slop(s, 3); got < want-slop || got > want+slop+1 {
				t.Fatalf("%+v at %d: %d leave at %d, want %d as before", s, now, n, got, want)
			}
			now = max(want, got) + anyPause(t, s)
			l.Take(at(now), at(now), 0) // so that both have seen this time
			next.Take(at(now), at(now), 0)
		}
	})
}

// From Until on a limiter behaves like a new one.
func TestMemoryMayBeForgottenFromUntilOn(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s := anySetting(t)
		l, now := busy(t, a, s)
		m, _ := l.Memory(at(now))
		until := max(m.Until.Sub(start), now) + anyPause(t, s)
		fresh := a.make(at(until), s)
		for range 5 {
			n := anyCost(t, 2*a.whole(s))
			got, want := leave(l, until, n), leave(fresh, until, n)
			if slop := a.slop(s, 3) + 1; got > want+slop || got < want-slop {
				t.Fatalf("%+v: Until is at most %d, but %d leave at %d, and from a new limiter at %d", s, until, n, got, want)
			}
			until = max(got, want)
		}
	})
}

// Until is not later than necessary: just before it, not all that may leave at once may
// leave.
func TestMemoryLastsNoLongerThanItHasTo(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s := anySetting(t)
		l, now := busy(t, a, s)
		m, _ := l.Memory(at(now))
		before := m.Until.Sub(start) - 2 - a.slop(s, 3)
		if before <= now {
			return
		}
		if next := l.Next(at(before), 0, a.whole(s)); !next.After(at(before)) {
			t.Fatalf("%+v: Until is %d, but all may leave at %d", s, m.Until.Sub(start), before)
		}
	})
}

// Under a rate of 0 a bucket remembers its debt for ever.
func TestMemoryUnderRateZero(t *testing.T) {
	for _, a := range algorithms {
		s := setting{limit: 10, window: time.Second, burst: 10}
		l := a.make(at(0), s)
		l.Take(at(0), at(0), 15)
		s.limit = 0
		l.SetRate(at(0), s.rate(), s.burst)
		m, _ := l.Memory(at(0))
		if lasts := a.name == "token" || a.name == "gcra"; lasts && m.Until != Never {
			t.Errorf("%s: Until is %v, want Never", a.name, m.Until)
		}
	}
}

// busy returns a limiter from which some items have left, and a time after the last.
func busy(t *rapid.T, a algorithm, s setting) (l Limiter, now time.Duration) {
	now = time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "start"))
	l = a.make(at(now), s)
	for range rapid.IntRange(0, 20).Draw(t, "items") {
		now = leave(l, now, anyCost(t, 2*a.whole(s))) + anyPause(t, s)
	}
	return l, now
}

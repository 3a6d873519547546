package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A limiter that remembers what another did goes on as that one would: never
// sooner, and not later than rounding has it.
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
				t.Fatalf("%+v at %d: %d leave at %d, and would have at %d", s, now, n, got, want)
			}
			now = max(want, got) + anyPause(t, s)
			l.Take(at(now), at(now), 0) // a time that both have seen
			next.Take(at(now), at(now), 0)
		}
	})
}

// From Until on nothing tells a limiter from one that has never been used.
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
				t.Fatalf("%+v: since %d nothing is to be remembered, and %d leave at %d and not at %d", s, until, n, got, want)
			}
			until = max(got, want)
		}
	})
}

// Until is not later than it has to be: just before it, something is missing of
// what may leave at once.
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
			t.Fatalf("%+v: to be remembered until %d, and all may leave at %d", s, m.Until.Sub(start), before)
		}
	})
}

// What has left is remembered under a rate of 0, however long.
func TestMemoryUnderRateZero(t *testing.T) {
	for _, a := range algorithms {
		s := setting{limit: 10, window: time.Second, burst: 10}
		l := a.make(at(0), s)
		l.Take(at(0), at(0), 15)
		s.limit = 0
		l.SetRate(at(0), s.rate(), s.burst)
		m, _ := l.Memory(at(0))
		if lasts := a.name == "token" || a.name == "gcra"; lasts && m.Until != Never {
			t.Errorf("%s: remembered until %v, and nothing is paid for", a.name, m.Until)
		}
	}
}

// busy returns a limiter from which something has left, and when the last did.
func busy(t *rapid.T, a algorithm, s setting) (l Limiter, now time.Duration) {
	now = time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "start"))
	l = a.make(at(now), s)
	for range rapid.IntRange(0, 20).Draw(t, "items") {
		now = leave(l, now, anyCost(t, 2*a.whole(s))) + anyPause(t, s)
	}
	return l, now
}

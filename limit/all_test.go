package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/unit"
)

// exact are the algorithms with a model that needs only the events.
func exactAlgorithms() (exact []algorithm) {
	for _, a := range algorithms {
		if a.allowed != nil {
			exact = append(exact, a)
		}
	}
	return exact
}

// several draws up to four limits, and makes one limiter of all of them.
func several(t *rapid.T, now time.Duration, closed Span) (kinds []algorithm, settings []setting, l Limiter) {
	var parts []Limiter
	for range rapid.IntRange(1, 4).Draw(t, "parts") {
		a, s := rapid.SampledFrom(exactAlgorithms()).Draw(t, "algorithm"), anySetting(t)
		s.limit, s.burst = min(s.limit, 20), min(s.burst, 20)
		kinds, settings, parts = append(kinds, a), append(settings, s), append(parts, a.make(at(now), s))
	}
	return kinds, settings, NewAll(closed, parts...)
}

// An item leaves at the first instant at which the model of each limit allows it, and at which
// nothing is closed.
func TestAllIsTheFirstInstantThatEachAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "start"))
		closed := anyClosed(t, now)
		kinds, settings, l := several(t, now, closed)
		var events []event
		allowed := func(at time.Duration, n int64) bool {
			if moment := start.Add(at); !moment.Before(closed.From) && moment.Before(closed.Until) {
				return false
			}
			for i, a := range kinds {
				if !a.allowed(settings[i], events, at, n) {
					return false
				}
			}
			return true
		}
		for range rapid.IntRange(1, 30).Draw(t, "items") {
			n := anyCost(t, 20)
			next := l.Next(at(now), 0, n).Sub(start)
			for _, early := range []time.Duration{next - 1, now + time.Duration(rapid.Int64Range(0, max(int64(next-now), 1)-1).Draw(t, "early"))} {
				if early >= now && early < next && allowed(early, n) {
					t.Fatalf("%+v, after %v: %d may leave at %d, want %d", settings, events, n, next, early)
				}
			}
			if now = max(now, next); !allowed(now, n) {
				t.Fatalf("%+v, after %v: %d may leave at %d, which is too early", settings, events, n, now)
			}
			l.Take(at(now), at(now), n)
			events = append(events, event{now, n})
			now += anyPause(t, settings[0])
		}
	})
}

// anyClosed draws a time in which nothing leaves, mostly one that begins within ten seconds of now.
func anyClosed(t *rapid.T, now time.Duration) (closed Span) {
	if rapid.Bool().Draw(t, "closes") {
		closed.From = at(now + time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "from")))
		closed.Until = closed.From.Add(time.Duration(rapid.Int64Range(1, 1e10).Draw(t, "closed for")))
	}
	return closed
}

// With units ahead, an item leaves no sooner than Next says, and Next says no sooner a time than
// any of the limits alone would. If nothing is closed, one limit alone says exactly when. A closed time ends at a
// whole nanosecond, and what leaves then may count as if it had left a part of one before.
func TestAllWithUnitsAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		closed := anyClosed(t, 0)
		_, settings, l := several(t, 0, closed)
		now := time.Duration(0)
		for range rapid.IntRange(0, 10).Draw(t, "items") {
			now = leave(l, now, anyCost(t, 20)) + anyPause(t, settings[0])
		}
		ahead, n := rapid.Int64Range(0, 100).Draw(t, "ahead"), rapid.Int64Range(1, 20).Draw(t, "n")
		got := max(now, l.Next(at(now), ahead, n).Sub(start))
		for i, part := range Parts(l) {
			if alone := part.Next(at(now), ahead, n).Sub(start); got < alone {
				t.Fatalf("%+v: behind %d, %d leave at %d, and from limit %d alone at %d", settings, ahead, n, got, i, alone)
			}
		}
		left := now
		for range ahead {
			left = leave(l, left, 1)
		}
		if closed != (Span{}) {
			got--
		}
		if left = max(left, l.Next(at(left), 0, n).Sub(start)); got > left || len(settings) == 1 && closed == (Span{}) && got != left {
			t.Fatalf("%+v, closed %v: behind %d, %d leave at %d, want at most %d", settings, closed, ahead, n, got, left)
		}
	})
}

// What is ahead when the closed time begins waits until it ends, whether the item itself would leave
// in that time or after it. Next says the same as a walk through the minutes.
func TestAllWithUnitsAheadOfAClosedTime(t *testing.T) {
	rate := unit.NewRate(unit.Messages, 1, time.Minute)
	closed := Span{at(10 * time.Minute), at(70 * time.Minute)}
	for name, part := range map[string]func() Limiter{
		"no burst": func() Limiter { return NewGCRA(at(0), rate, 1) },
		"a burst":  func() Limiter { return NewGCRA(at(0), rate, 5) },
		"a token":  func() Limiter { return NewToken(at(0), rate, 5) },
		"a window": func() Limiter { return NewFixedWindow(at(0), unit.NewRate(unit.Messages, 20, time.Hour), time.Hour) },
		"a log":    func() Limiter { return NewSlidingLog(at(0), unit.NewRate(unit.Messages, 20, time.Hour), time.Hour) },
		"a short log": func() Limiter {
			return NewSlidingLog(at(0), unit.NewRate(unit.Messages, 2, 3*time.Minute), 3*time.Minute)
		},
		"a long window": func() Limiter {
			return NewFixedWindow(at(0), unit.NewRate(unit.Messages, 30, 2*time.Hour), 2*time.Hour)
		},
	} {
		for _, now := range []time.Duration{0, 3 * time.Minute, 40 * time.Minute, 70 * time.Minute, 90 * time.Minute} {
			for _, ahead := range []int64{0, 1, 5, 9, 10, 12, 19, 30, 100} {
				got := max(NewAll(closed, part()).Next(at(now), ahead, 1).Sub(start), now)
				walked, minute := NewAll(closed, part()), now
				for left := int64(0); left <= ahead; minute += time.Minute {
					for ; left <= ahead && !walked.Next(at(minute), 0, 1).After(at(minute)); left++ {
						walked.Take(at(minute), at(minute), 1)
					}
				}
				if want := minute - time.Minute; got != want {
					t.Errorf("%s: at %v, behind %d, one leaves at %v, want %v", name, now, ahead, got, want)
				}
			}
		}
	}
}

// Each limit remembers for itself, and goes on.
func TestAllGoesOnFromItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds, settings, l := several(t, 0, Span{})
		now := time.Duration(0)
		for range rapid.IntRange(0, 20).Draw(t, "items") {
			now = leave(l, now, anyCost(t, 20)) + anyPause(t, settings[0])
		}
		var parts []Limiter
		until := time.Time{}
		for i, part := range Parts(l) {
			m, whole := part.Memory(at(now))
			if !whole {
				return
			}
			next := kinds[i].make(at(now), settings[i])
			next.Remember(m)
			parts, until = append(parts, next), latest(until, m.Until)
		}
		if m, whole := l.Memory(at(now)); !m.Until.Equal(until) || whole != (len(parts) == 1) {
			t.Fatalf("the whole is remembered until %v (%v), its parts until %v", m.Until, whole, until)
		}
		again := NewAll(Span{}, parts...)
		for range 10 {
			n := anyCost(t, 20)
			want, got := leave(l, now, n), leave(again, now, n)
			if got < want || got > want+3 {
				t.Fatalf("%+v: %d leave at %d, want %d as before", settings, n, got, want)
			}
			now = max(want, got) + anyPause(t, settings[0])
		}
	})
}

func TestHoldingSaysWhichLimit(t *testing.T) {
	perSecond := NewGCRA(at(0), unit.NewRate(unit.Messages, 1, time.Second), 2)
	perHour := NewFixedWindow(at(0), unit.NewRate(unit.Messages, 4, time.Hour), time.Hour)
	l := NewAll(Span{at(10 * second), at(20 * second)}, perSecond, perHour)
	want := func(now time.Duration, part int, until time.Duration) {
		t.Helper()
		if got, at := Holding(l, at(now), 0, 1); got != part || at.Sub(start) != until {
			t.Errorf("at %v, limit %d holds until %v, want %d until %v", now, got, at.Sub(start), part, until)
		}
	}
	l.Take(at(0), at(0), 2)
	want(0, 0, second)
	want(12*second, 2, 20*second)
	l.Take(at(21*second), at(21*second), 2)
	want(21*second, 1, time.Hour)
	if got, until := Holding(perHour, at(0), 0, 1); got != 0 || until.Sub(start) != time.Hour {
		t.Errorf("a limiter that stands alone: %d until %v", got, until)
	}
}

// A part that counts from when an item has left makes the whole do so.
func TestAllSettlesIfAPartDoes(t *testing.T) {
	rate := unit.NewRate(unit.Messages, 1, time.Second)
	if _, settles := NewAll(Span{}, NewGCRA(at(0), rate, 1)).(Settler); settles {
		t.Error("a bucket settles")
	}
	part := &settles{Limiter: NewGCRA(at(0), rate, 1)}
	l := NewAll(Span{}, NewGCRA(at(0), rate, 1), part)
	s, settles := l.(Settler)
	if !settles {
		t.Fatal("it does not settle")
	}
	s.Left(at(time.Second), at(0), 1)
	if part.left != at(time.Second) {
		t.Errorf("the part was told %v", part.left)
	}
	if got := Parts(l); len(got) != 2 || got[1] != Limiter(part) {
		t.Errorf("its parts are %v", got)
	}
}

type settles struct {
	Limiter
	left time.Time
}

func (s *settles) Left(now, _ time.Time, _ int64) { s.left = now }
func (s *settles) Alone() bool                    { return true }

func TestAllAllocatesNothing(t *testing.T) {
	l, now := threeWindows(), time.Duration(0)
	step := func() { now = leave(l, now, 1) }
	for range 2000 { // the log grows at first
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}

// threeWindows is a limit for each second, minute and day. Nothing leaves on the second day.
func threeWindows() Limiter {
	rate := func(n int64, per time.Duration) unit.Rate { return unit.NewRate(unit.Messages, n, per) }
	closed := Span{at(24 * time.Hour), at(48 * time.Hour)}
	return NewAll(closed, NewGCRA(at(0), rate(1000, time.Second), 1), NewSlidingLog(at(0), rate(900, time.Minute), time.Minute),
		NewCalendarWindow(at(0), rate(1_000_000, 24*time.Hour), days("America/Los_Angeles")))
}

func BenchmarkAllOfThreeWindows(b *testing.B) {
	b.ReportAllocs()
	l, now := threeWindows(), time.Duration(0)
	for b.Loop() {
		now = leave(l, now, 1)
	}
}

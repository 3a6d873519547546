package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/calendar"
	"shaper/unit"
)

// amending are all algorithms that can correct a charge.
var amending = append(algorithms[:len(algorithms):len(algorithms)], algorithm{name: "calendar", make: func(now time.Time, s setting) Limiter {
	return NewCalendarWindow(now, unit.NewRate(unit.Packets, s.limit, 24*time.Hour), calendar.Windows{Period: calendar.Day})
}})

// An item that costs less at the moment at which it leaves is like one that was charged less, however
// many windows or bursts it was charged.
func TestAmendAtOnce(t *testing.T) {
	for _, a := range amending {
		t.Run(a.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := anySetting(t)
				n := anyCost(t, a.whole(s)*rapid.SampledFrom([]int64{1, 1, 4}).Draw(t, "largest"))
				more := rapid.Int64Range(-n, max(a.whole(s)-n, 0)).Draw(t, "more")
				amended, charged := a.make(start, s), a.make(start, s)
				amended.Take(start, start, n)
				Amend(amended, start, start, more)
				if n+more > 0 {
					charged.Take(start, start, n+more)
				}
				begins := start
				if rapid.Bool().Draw(t, "another one leaves") {
					cost := anyCost(t, a.whole(s))
					begins = latest(latest(amended.Next(start, 0, cost), charged.Next(start, 0, cost)), start)
					amended.Take(begins, begins, cost)
					charged.Take(begins, begins, cost)
				}
				for range 5 {
					now, cost := begins.Add(anyPause(t, s)), anyCost(t, a.whole(s))
					got, want := latest(amended.Next(now, 0, cost), now), latest(charged.Next(now, 0, cost), now)
					if diff := got.Sub(want); diff < -1 || diff > 1 { // the halves of a nanosecond of a float64
						t.Fatalf("%d after %v: %v later than with the right charge", cost, now.Sub(start), diff)
					}
				}
			})
		})
	}
}

// However late an item is given back, a window never lets out more than if the item had never
// been, and a bucket never more than a full one. Neither lets out less than if nothing had been
// given back.
func TestAmendGivesBackNoMoreThanCounts(t *testing.T) {
	for _, a := range amending {
		t.Run(a.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s, now := anySetting(t), start
				amended, without, with := a.make(start, s), a.make(start, s), a.make(start, s)
				n, then := int64(0), start
				for i := range rapid.IntRange(1, 8).Draw(t, "items") {
					now = now.Add(anyPause(t, s))
					cost := anyCost(t, a.whole(s))
					now = latest(with.Next(now, 0, cost), now)
					amended.Take(now, now, cost)
					with.Take(now, now, cost)
					if i == 0 {
						n, then = cost, now
					} else {
						without.Take(now, now, cost)
					}
				}
				now = now.Add(anyPause(t, s))
				if a.name == "token" || a.name == "gcra" {
					without = a.make(now, s)
				}
				Amend(amended, now, then, -rapid.Int64Range(1, n).Draw(t, "back"))
				for range 5 {
					now := now.Add(anyPause(t, s))
					cost := anyCost(t, a.whole(s))
					at := latest(amended.Next(now, 0, cost), now)
					if first := without.Next(now, 0, cost); at.Before(first.Add(-1)) {
						t.Fatalf("%d leaves at %v, and never before %v", cost, at.Sub(start), first.Sub(start))
					}
					if last := latest(with.Next(now, 0, cost), now); at.After(last.Add(1)) {
						t.Fatalf("%d leaves at %v, and %v if nothing had been given back", cost, at.Sub(start), last.Sub(start))
					}
				}
			})
		})
	}
}

// An item that costs less after all gets no more back because the rate or the burst has changed since
// it left: nothing leaves sooner than if it had been charged rightly.
func TestAmendAfterSetRate(t *testing.T) {
	for _, a := range amending {
		t.Run(a.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := anySetting(t)
				next := s
				next.limit *= rapid.Int64Range(1, 4).Draw(t, "faster")
				next.burst = max(next.burst*rapid.Int64Range(0, 10).Draw(t, "larger")/2, 1)
				n := anyCost(t, a.whole(s))
				back := rapid.Int64Range(1, n).Draw(t, "back")
				changed := start.Add(1 + anyPause(t, s))
				answered := changed.Add(anyPause(t, s))
				amended, rightly := a.make(start, s), a.make(start, s)
				amended.Take(start, start, n)
				if n > back {
					rightly.Take(start, start, n-back)
				}
				for _, l := range []Limiter{amended, rightly} {
					l.SetRate(changed, next.rate(), next.burst)
				}
				Amend(amended, answered, start, -back)
				for range 5 {
					now, cost := answered.Add(anyPause(t, s)), anyCost(t, a.whole(next))
					got, want := latest(amended.Next(now, 0, cost), now), latest(rightly.Next(now, 0, cost), now)
					if got.Before(want.Add(-2)) { // each change rounds to a nanosecond
						t.Fatalf("%d leaves at %v, want %v as with the right charge", cost, got.Sub(start), want.Sub(start))
					}
				}
			})
		})
	}
}

// A limiter that has taken the place of another one gives nothing back for what left until then,
// whenever the answer comes. It gives back what has left since like any other.
func TestAmendOfASuccessor(t *testing.T) {
	for _, a := range amending {
		t.Run(a.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s, begins := anySetting(t), start.Add(time.Hour)
				already, n := anyCost(t, a.whole(s)), anyCost(t, a.whole(s))
				left := begins.Add(1 + anyPause(t, s))
				answered := left.Add(anyPause(t, s))
				limiter := func(amends func(Limiter)) Limiter {
					l := a.make(begins, s)
					l.Take(begins, begins, already)
					l.Take(left, left, n)
					amends(l)
					return l
				}
				back := -rapid.Int64Range(1, n).Draw(t, "back")
				same := func(what string, got, want Limiter) {
					for range 3 {
						now, cost := answered.Add(anyPause(t, s)), anyCost(t, a.whole(s))
						got, want := latest(got.Next(now, 0, cost), now), latest(want.Next(now, 0, cost), now)
						if diff := got.Sub(want); diff < -1 || diff > 1 { // the halves of a nanosecond of a float64
							t.Fatalf("%s: %d after %v leaves at %v, want %v", what, cost, now.Sub(begins), got.Sub(begins), want.Sub(begins))
						}
					}
				}
				same("of the one before", limiter(func(l Limiter) {
					Succeed(l, begins)
					Amend(l, answered, begins.Add(-anyPause(t, s)), back)
				}), limiter(func(Limiter) {}))
				same("of its own", limiter(func(l Limiter) {
					Succeed(l, begins)
					Amend(l, answered, left, back)
				}), limiter(func(l Limiter) { Amend(l, answered, left, back) }))
			})
		})
	}
}

// A bucket that has earned a charge back already does not get it again, whatever it counts.
func TestAmendOfAFullBucket(t *testing.T) {
	for _, kind := range []unit.Kind{unit.Bytes, unit.Packets, unit.Messages, unit.Connections, unit.Tokens} {
		rate := unit.NewRate(kind, 10, time.Second)
		for name, l := range map[string]Limiter{"token": NewToken(start, rate, 100), "gcra": NewGCRA(start, rate, 100)} {
			l.Take(start, start, 100)
			full := start.Add(10 * time.Second)
			l.Take(full, full, 100)
			Amend(l, full, start, -90)
			if wait := l.Next(full, 0, 90).Sub(full); wait != 9*time.Second {
				t.Errorf("%s of %v: 90 more leave %v after all that the bucket holds, want 9s", name, kind, wait)
			}
		}
	}
}

// AmendWindows corrects windows, and nothing else.
func TestAmendWindows(t *testing.T) {
	hour := func() Limiter { return NewFixedWindow(start, unit.NewRate(unit.Messages, 10, time.Hour), time.Hour) }
	second := func() Limiter { return NewSlidingLog(start, unit.NewRate(unit.Messages, 10, time.Second), time.Second) }
	bucket := func() Limiter { return NewGCRA(start, unit.NewRate(unit.Messages, 1, time.Second), 10) }
	day := func() Limiter { return amending[len(amending)-1].make(start, setting{limit: 10}) }
	for name, c := range map[string]struct {
		limiter Limiter
		back    bool
	}{
		"a window":        {hour(), true},
		"a calendar":      {day(), true},
		"a log":           {second(), true},
		"a bucket":        {bucket(), false},
		"hints":           {&Hints{}, true}, // which hold nothing up
		"windows":         {NewAll(Span{}, hour(), day()), true},
		"a bucket of all": {NewAll(Span{}, hour(), bucket()), false},
	} {
		c.limiter.Take(start, start, 10)
		AmendWindows(c.limiter, start, start, -4)
		if got := !c.limiter.Next(start, 0, 4).After(start); got != c.back {
			t.Errorf("%s: 4 of 10 are given back: %v", name, got)
		}
		if n := int64(5); name != "hints" && !c.limiter.Next(start, 0, n).After(start) {
			t.Errorf("%s: more than 4 are given back", name)
		}
	}
	all := NewAll(Span{}, bucket(), hour())
	all.Take(start, start, 10)
	AmendWindows(all, start, start, -4)
	if at := all.Next(start, 0, 4); !at.Equal(start.Add(4 * time.Second)) {
		t.Errorf("4 messages leave at %v, want when the bucket has them", at.Sub(start))
	}
}

// Turns that are lost leave nothing in a log: however many they are, the next item leaves as if there had been none.
func TestLostTurnsFillNoLog(t *testing.T) {
	const day = 24 * time.Hour
	newLog := func() *SlidingLog { return NewSlidingLog(start, unit.NewRate(unit.Messages, 1000, day), day) }
	lost, want, now := newLog(), newLog(), start
	for range maxDepartures + 1000 {
		lost.Take(now, now, 1)
		Amend(lost, now, now, -1)
		now = now.Add(time.Second)
	}
	for range 1000 {
		lost.Take(now, now, 1)
		want.Take(now, now, 1)
		now = now.Add(time.Minute)
	}
	if got, want := lost.Next(now, 0, 1), want.Next(now, 0, 1); !got.Equal(want) {
		t.Errorf("after lost turns the next item leaves %v after the first one, want %v", got.Sub(start), want.Sub(start))
	}
	if lost.log.n != 1000 {
		t.Errorf("the log holds %d departures, want those that left: 1000", lost.log.n)
	}
}

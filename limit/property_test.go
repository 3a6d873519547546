package limit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/unit"
)

// Each property in this file holds for every algorithm.

// A setting is what a limiter is made from.
type setting struct {
	limit  int64 // units in a window: the rate
	window time.Duration
	burst  int64
}

func (s setting) rate() unit.Rate { return unit.NewRate(unit.Messages, s.limit, s.window) }

// An event is an item that left.
type event struct {
	at time.Duration // since start
	n  int64
}

// An algorithm is how to make a limiter, and what it promises.
type algorithm struct {
	name string
	make func(now time.Time, s setting) Limiter
	// most returns how many units may leave within d, both ends included.
	most func(s setting, d time.Duration) *big.Rat
	// allowed is the model: it reports whether n units may leave at an instant after
	// those events. It uses exact fractions, and the events alone. Token computes in
	// float64 and has its own model.
	allowed func(s setting, events []event, at time.Duration, n int64) bool
}

var algorithms = []algorithm{
	{"token", func(now time.Time, s setting) Limiter { return NewToken(now, s.rate(), s.burst) }, mostOfABucket, nil},
	{"gcra", func(now time.Time, s setting) Limiter { return NewGCRA(now, s.rate(), s.burst) }, mostOfABucket, bucketAllows},
	{"fixed-window", func(now time.Time, s setting) Limiter { return NewFixedWindow(now, s.rate(), s.window) },
		func(s setting, d time.Duration) *big.Rat { return big.NewRat(s.limit*int64(d/s.window+2), 1) }, fixedAllows},
	{"sliding-log", func(now time.Time, s setting) Limiter { return NewSlidingLog(now, s.rate(), s.window) },
		func(s setting, d time.Duration) *big.Rat { return big.NewRat(s.limit*int64(d/s.window+1), 1) }, logAllows},
	{"sliding-window", func(now time.Time, s setting) Limiter { return NewSlidingWindow(now, s.rate(), s.window) },
		func(s setting, d time.Duration) *big.Rat { return big.NewRat(s.limit*int64(d/s.window+2), 1) }, slidingAllows},
}

func mostOfABucket(s setting, d time.Duration) *big.Rat {
	most := allows(s.rate(), d+1)
	return most.Add(most, big.NewRat(s.burst, 1))
}

// bucketAllows is the virtual scheduling of I.371, in exact fractions.
func bucketAllows(s setting, events []event, at time.Duration, n int64) bool {
	tat := new(big.Rat)
	arrive := func(at time.Duration) {
		if tat.Cmp(big.NewRat(int64(at-1), 1)) <= 0 {
			tat.SetInt64(int64(at))
		}
	}
	each := new(big.Rat).Inv(allows(s.rate(), 1)) // how many nanoseconds a unit takes
	for _, e := range events {
		arrive(e.at)
		tat.Add(tat, new(big.Rat).Mul(each, big.NewRat(e.n, 1)))
	}
	arrive(at)
	early := new(big.Rat).Mul(each, big.NewRat(s.burst-min(n, s.burst), 1))
	return tat.Cmp(early.Add(early, big.NewRat(int64(at), 1))) <= 0
}

// windowOf returns the number of the window that an instant is in, and how far into it.
func windowOf(s setting, at time.Duration) (number int64, elapsed time.Duration) {
	since := at + start.Sub(start.Truncate(s.window))
	return int64(since / s.window), since % s.window
}

// perWindow counts the events by the number of their window. What has no room in its own
// window counts in the windows after it.
func perWindow(s setting, events []event) map[int64]int64 {
	used := map[int64]int64{}
	for _, e := range events {
		number, _ := windowOf(s, e.at)
		for remaining := e.n; remaining > 0; number++ {
			n := max(min(remaining, s.limit-used[number]), 0)
			used[number] += n
			remaining -= n
		}
	}
	return used
}

func fixedAllows(s setting, events []event, at time.Duration, n int64) bool {
	number, _ := windowOf(s, at)
	return perWindow(s, events)[number]+min(n, s.limit) <= s.limit
}

func slidingAllows(s setting, events []event, at time.Duration, n int64) bool {
	number, elapsed := windowOf(s, at)
	used := perWindow(s, events)
	count := big.NewRat(int64(s.window-elapsed), int64(s.window))
	count.Mul(count, big.NewRat(used[number-1], 1))
	count.Add(count, big.NewRat(used[number]+min(n, s.limit), 1))
	return count.Cmp(big.NewRat(s.limit, 1)) <= 0
}

func logAllows(s setting, events []event, at time.Duration, n int64) bool {
	used := int64(0)
	for _, e := range events {
		// An item that is larger than the limit is logged in the last window that it fills.
		logged := e.at + time.Duration((e.n-1)/s.limit)*s.window
		if logged > at-s.window {
			used += e.n
		}
	}
	return used+min(n, s.limit) <= s.limit
}

func anySetting(t *rapid.T) setting {
	window := rapid.SampledFrom([]time.Duration{2, 10, 1001, time.Millisecond, time.Second, 7 * time.Second, 15 * time.Minute})
	scale := int64(1) << rapid.SampledFrom([]int{0, 0, 0, 7, 30}).Draw(t, "scale")
	return setting{
		limit:  rapid.Int64Range(1, 20).Draw(t, "limit") * scale,
		window: window.Draw(t, "window"),
		burst:  rapid.Int64Range(1, 20).Draw(t, "burst") * scale,
	}
}

// whole returns the most that may leave at once.
func (a algorithm) whole(s setting) int64 {
	if a.name == "token" || a.name == "gcra" {
		return s.burst
	}
	return s.limit
}

// anyCost draws a cost of at most whole, often a small one.
func anyCost(t *rapid.T, whole int64) int64 {
	return rapid.OneOf(rapid.Int64Range(1, whole), rapid.Int64Range(1, 1+whole/8), rapid.Just(whole)).Draw(t, "n")
}

// anyPause draws how long nothing happens, mostly less than a window.
func anyPause(t *rapid.T, s setting) time.Duration {
	return time.Duration(rapid.OneOf(
		rapid.Just(int64(0)), rapid.Int64Range(0, int64(s.window)/3+1), rapid.Int64Range(0, 3*int64(s.window)),
	).Draw(t, "pause"))
}

// grain returns how late an item may be because a log joins departures.
func (a algorithm) grain(s setting) time.Duration {
	if a.name != "sliding-log" || s.limit <= maxDepartures {
		return 0
	}
	return s.window/(maxDepartures-2) + 1
}

func forEach(t *testing.T, property func(t *rapid.T, a algorithm)) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { property(t, a) })
		})
	}
}

// leave lets n units leave as soon as they may from now on, and returns when.
func leave(l Limiter, now time.Duration, n int64) time.Duration {
	if next := l.Next(at(now), 0, n).Sub(start); next > now {
		now = next
	}
	l.Take(at(now), at(now), n)
	return now
}

// Next is the first instant at which the model lets an item leave. The model does not
// let it leave a nanosecond before that, nor at any other instant since now.
func TestNextIsTheFirstInstant(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		if a.allowed == nil {
			return
		}
		s, now := anySetting(t), time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "start"))
		largest := rapid.SampledFrom([]int64{1, 1, 4}).Draw(t, "largest")
		l, events := a.make(at(now), s), []event(nil)
		for range rapid.IntRange(1, 30).Draw(t, "items") {
			n := anyCost(t, a.whole(s)*largest)
			next := l.Next(at(now), 0, n).Sub(start)
			for _, early := range []time.Duration{next - 1, now + time.Duration(rapid.Int64Range(0, max(int64(next-now), 1)-1).Draw(t, "early"))} {
				if early >= now && early < next-a.grain(s) && a.allowed(s, events, early, n) {
					t.Fatalf("%+v, after %v: %d may leave at %d, want %d", s, events, n, next, early)
				}
			}
			if now = max(now, next); !a.allowed(s, events, now, n) {
				t.Fatalf("%+v, after %v: %d may leave at %d, which is too early", s, events, n, now)
			}
			if !rapid.Bool().Draw(t, "on time") {
				now += anyPause(t, s)
			}
			l.Take(at(now), at(now), n)
			events = append(events, event{now, n})
		}
	})
}

// The promise holds between any two departures, also if times go back and if items are
// larger than what may leave at once.
func TestPromiseHoldsInEveryWindow(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s, now, events := anySetting(t), time.Duration(0), []event(nil)
		l := a.make(at(now), s)
		for range rapid.IntRange(1, 40).Draw(t, "items") {
			now += anyPause(t, s)
			stale := now - anyPause(t, s)
			n := anyCost(t, 2*a.whole(s))
			now = max(now, l.Next(at(stale), 0, n).Sub(start))
			l.Take(at(now), at(stale), 0) // must not turn the clock back
			if next := l.Next(at(now), 0, n).Sub(start); next > now+a.slop(s, 1) {
				t.Fatalf("%+v: %d may leave at %d, but asked then, at %d", s, n, now, next)
			}
			l.Take(at(now), at(now), n)
			events = append(events, event{now, n})
		}
		for i := range events {
			sum, above := int64(0), int64(0)
			for _, e := range events[i:] {
				sum, above = sum+e.n, max(above, e.n-a.whole(s))
				most := a.most(s, e.at-events[i].at)
				if most.Add(most, big.NewRat(above, 1)); most.Cmp(big.NewRat(sum, 1)) < 0 {
					t.Fatalf("%+v: %d left within %d, want at most %v", s, sum, e.at-events[i].at, most.FloatString(3))
				}
			}
		}
	})
}

// An item with units ahead leaves when it would if these leave one by one, whatever rates
// were set before.
func TestAheadIsWhatLeavesBefore(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s := anySetting(t)
		s.limit, s.burst = min(s.limit, 20), min(s.burst, 20)
		now := time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "start"))
		l, played := a.make(at(now), s), a.make(at(now), s)
		for range rapid.IntRange(0, 20).Draw(t, "items") {
			n := anyCost(t, 2*a.whole(s))
			leave(l, now, n)
			now = leave(played, now, n) + anyPause(t, s)
			if rapid.IntRange(0, 3).Draw(t, "set") == 0 {
				s.limit, s.burst = rapid.Int64Range(1, 20).Draw(t, "limit"), rapid.Int64Range(1, 20).Draw(t, "burst")
				l.SetRate(at(now), s.rate(), s.burst)
				played.SetRate(at(now), s.rate(), s.burst)
			}
		}
		ahead, n := rapid.Int64Range(0, 100).Draw(t, "ahead"), rapid.Int64Range(0, a.whole(s)).Draw(t, "n")
		got, want := max(now, l.Next(at(now), ahead, n).Sub(start)), now
		for range ahead {
			want = leave(played, want, 1)
		}
		want = max(want, played.Next(at(want), 0, n).Sub(start))
		if slop := a.slop(s, ahead); got < want-slop || got > want+slop {
			t.Fatalf("%+v at %d: behind %d, %d leave at %d, want %d", s, now, ahead, n, got, want)
		}
	})
}

// slop returns how much a time may differ from the model. It is 0 except for Token: a
// full bucket loses what arrives until the next whole nanosecond of the clock.
func (a algorithm) slop(s setting, items int64) time.Duration {
	if a.name != "token" {
		return 0
	}
	return time.Duration(items+1) * precision(s.rate(), s.burst)
}

// Setting rates back and forth gives nothing: no item leaves sooner than without.
func TestSetRateGivesNothing(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s := anySetting(t)
		other := setting{rapid.Int64Range(0, 100).Draw(t, "other limit"), s.window, s.burst}
		l, same := a.make(at(0), s), a.make(at(0), s)
		now := time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "items") {
			n := anyCost(t, 2*a.whole(s))
			want := leave(same, now, n)
			got := leave(l, now, n)
			// A part of a unit is rounded up to a whole one if the other rate is 0, and
			// else to a nanosecond of each rate.
			if slop := a.slop(s, 20); got < want-slop-2 {
				t.Fatalf("%+v, to %+v and back: %d leave at %d, without %d", s, other, n, got, want)
			}
			now = max(now, want, got) + anyPause(t, s)
			for range 3 {
				l.SetRate(at(now), other.rate(), other.burst)
				l.SetRate(at(now), s.rate(), s.burst)
			}
		}
	})
}

func TestRateZeroBlocks(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			s := setting{10, second, 10}
			none := setting{0, second, 10}
			l := a.make(at(0), none)
			if got := l.Next(at(time.Hour), 3, 1); got != Never {
				t.Errorf("an item may leave at %v", got)
			}
			l.Take(at(0), at(time.Hour), 7) // nobody should, but it must neither hang nor grant anything
			l.SetRate(at(2*time.Hour), s.rate(), s.burst)
			l.Take(at(0), at(2*time.Hour), 10)
			if got := l.Next(at(2*time.Hour), 0, 1); !got.After(at(2 * time.Hour)) {
				t.Errorf("an eleventh unit may leave at once, at %v", got)
			}
			l.SetRate(at(2*time.Hour), none.rate(), none.burst)
			if got := l.Next(at(9*time.Hour), 0, 1); got != Never {
				t.Errorf("an item may leave at %v", got)
			}
		})
	}
}

// A rate that allows less than a unit in a window allows none.
func TestLessThanOneInAWindowBlocks(t *testing.T) {
	s := setting{1, second, 1}
	for _, l := range []Limiter{
		NewFixedWindow(at(0), s.rate(), second-1), NewSlidingLog(at(0), s.rate(), second-1), NewSlidingWindow(at(0), s.rate(), 0),
	} {
		if got := l.Next(at(0), 0, 1); got != Never {
			t.Errorf("%T lets a unit leave at %v", l, got)
		}
	}
}

// A time that would overflow is Never.
func TestExtremes(t *testing.T) {
	for _, a := range algorithms {
		for _, s := range []setting{
			{1, 8784 * time.Hour, 1}, {1 << 43, 1, 1 << 43}, {1 << 43, 8784 * time.Hour, 1}, {0, second, 1 << 43}, {1<<43 - 1, second, 1<<43 - 3},
		} {
			l := a.make(at(0), s)
			before := time.Time{}
			for range 100 {
				l.Take(at(0), at(0), 1<<43)
				next := l.Next(at(0), math.MaxInt64>>2, 1<<43)
				if next.Before(before) || next.After(Never) {
					t.Fatalf("%s, %+v: the next item may leave at %v, which was %v before", a.name, s, next, before)
				}
				before = next
			}
			l.SetRate(at(0), unit.NewRate(unit.Packets, 1, time.Second), 1)
			l.SetRate(at(-time.Hour), s.rate(), s.burst)
			if s.limit < 1<<43 && !l.Next(at(0), 0, 1).After(at(second)) {
				t.Errorf("%s, %+v: the limiter has forgotten a hundred large items", a.name, s)
			}
		}
	}
}

func TestNextChangesNothing(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s := anySetting(t)
		l, asked, now := a.make(at(0), s), a.make(at(0), s), time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "items") {
			n := anyCost(t, 2*a.whole(s))
			asked.Next(at(now+anyPause(t, s)), rapid.Int64Range(0, 100).Draw(t, "ahead"), n)
			want := leave(l, now, n)
			if got := leave(asked, now, n); got != want {
				t.Fatalf("%+v: %d leave at %d, and without the call of Next at %d", s, n, got, want)
			}
			now = want + anyPause(t, s)
		}
	})
}

// What a window says of another rate is what it says once that holds. To ask changes nothing.
func TestWindowAtAnotherRate(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s := anySetting(t)
		l, changed, now := a.make(at(0), s), a.make(at(0), s), time.Duration(0)
		w, counts := l.(Window)
		if !counts {
			return
		}
		for range rapid.IntRange(1, 10).Draw(t, "items") {
			n := anyCost(t, 2*a.whole(s))
			now = leave(changed, now, n)
			l.Take(at(now), at(now), n)
			now += anyPause(t, s)
		}
		rate := unit.NewRate(unit.Messages, rapid.Int64Range(0, 3*s.limit).Draw(t, "limit"), s.window)
		ahead, n := rapid.Int64Range(0, 100).Draw(t, "ahead"), anyCost(t, 2*a.whole(s))
		before := l.Next(at(now), ahead, n)
		got := w.NextAt(rate, at(now), ahead, n)
		changed.SetRate(at(now), rate, 0)
		if want := changed.Next(at(now), ahead, n); !got.Equal(want) {
			t.Fatalf("%s: at another rate %d leave behind %d at %v, want %v", a.name, n, ahead, got.Sub(at(0)), want.Sub(at(0)))
		}
		if after := l.Next(at(now), ahead, n); !after.Equal(before) {
			t.Fatalf("%s: it says %v after that, and %v before", a.name, after, before)
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	for _, a := range algorithms {
		l, now := a.make(at(0), setting{100, second, 5}), time.Duration(0)
		step := func() {
			now = leave(l, now, 1)
			l.Next(at(now), 1000, 7)
			now = leave(l, now, 200)
		}
		for range 100 { // a log grows at first
			step()
		}
		if n := testing.AllocsPerRun(100, step); n != 0 {
			t.Errorf("%s allocates %v times", a.name, n)
		}
	}
}

func BenchmarkAll(b *testing.B) {
	for _, a := range algorithms {
		b.Run(a.name, func(b *testing.B) {
			b.ReportAllocs()
			l, now := a.make(at(0), setting{1000, second, 5}), time.Duration(0)
			for b.Loop() {
				now = leave(l, now, 1)
			}
		})
	}
}

// anyRate draws a rate from a tenth per second to 8 TiB/s.
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

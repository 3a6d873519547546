package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/calendar"
	"shaper/unit"
)

// days returns the days of a zone.
func days(name string) calendar.Windows {
	z, err := calendar.ParseZone(name)
	if err != nil {
		panic(err)
	}
	return calendar.Windows{Period: calendar.Day, Zone: z}
}

var zones = []string{"America/Los_Angeles", "Europe/Paris", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata", "UTC"}

func perDay(n int64) unit.Rate { return unit.NewRate(unit.Messages, n, 24*time.Hour) }

// A provider that counts 1,000 in each of its calendar days gets 1,000 in each under demand, and
// never 1,001: over all changes of summer time of two years, and over restarts in which the
// limiter is remembered.
func TestEachCalendarDayHasItsQuota(t *testing.T) {
	const quota = 1000
	for _, zone := range zones {
		w := days(zone)
		loc := w.Zone.Location()
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, loc)
		end := time.Date(2028, 1, 1, 0, 0, 0, 0, loc)
		var l Limiter = NewCalendarWindow(now, perDay(quota), w)
		perDate := map[string]int{}
		for items := 0; now.Before(end); items++ {
			if next := l.Next(now, 0, 1); next.After(now) {
				now = next
				continue
			}
			l.Take(now, now, 1)
			perDate[now.In(loc).Format(time.DateOnly)]++
			now = now.Add(7 * time.Second) // some two hours for the quota
			if items%777 == 0 {
				m, whole := l.Memory(now)
				if !whole {
					t.Fatal("the memory is not whole")
				}
				l = NewCalendarWindow(now, perDay(quota), w)
				l.Remember(m)
			}
		}
		if len(perDate) != 730 {
			t.Errorf("%s: %d days, want 730", zone, len(perDate))
		}
		for date, n := range perDate {
			if n != quota {
				t.Errorf("%s: %d on %s, want %d", zone, n, date, quota)
			}
		}
	}
}

// calendarAllows is the model: what has no room in its own window counts in those after it.
func calendarAllows(w calendar.Windows, limit int64, events []event, now time.Duration, n int64) bool {
	used := map[int64]int64{}
	for _, e := range events {
		begin, end := w.Around(at(e.at))
		for remaining := e.n; remaining > 0; begin, end = w.Around(end) {
			n := max(min(remaining, limit-used[begin.Unix()]), 0)
			used[begin.Unix()] += n
			remaining -= n
		}
	}
	begin, _ := w.Around(at(now))
	return used[begin.Unix()]+min(n, limit) <= limit
}

func TestCalendarWindowIsTheFirstInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := days(rapid.SampledFrom(zones).Draw(t, "zone"))
		w.Period = rapid.SampledFrom([]calendar.Period{calendar.Day, calendar.Week, calendar.Month}).Draw(t, "period")
		w.Reset = calendar.Clock(rapid.IntRange(0, 24*60-1).Draw(t, "reset"))
		limit := rapid.Int64Range(1, 20).Draw(t, "limit")
		rate := unit.NewRate(unit.Messages, limit, w.Period.Nominal())
		pause := func() time.Duration {
			return time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(w.Period.Nominal()/4)), rapid.Int64Range(0, int64(3*w.Period.Nominal()))).Draw(t, "pause"))
		}
		now := pause() * 20
		var l Limiter = NewCalendarWindow(at(now), rate, w)
		var events []event
		for range rapid.IntRange(1, 20).Draw(t, "items") {
			n := anyCost(t, 3*limit)
			next := l.Next(at(now), 0, n).Sub(start)
			if early := next - 1; early >= now && calendarAllows(w, limit, events, early, n) {
				t.Fatalf("%v, %d, after %v: %d may leave at %v, want sooner", w, limit, events, n, at(next))
			}
			if now = max(now, next); !calendarAllows(w, limit, events, now, n) {
				t.Fatalf("%v, %d, after %v: %d may leave at %v, which is too early", w, limit, events, n, at(now))
			}
			l.Take(at(now), at(now), n)
			events = append(events, event{now, n})
			now += pause()
			switch last := l; rapid.SampledFrom([]string{"none", "remember", "recall"}).Draw(t, "restart") {
			case "remember":
				m, _ := last.Memory(at(now))
				l = NewCalendarWindow(at(now), rate, w)
				l.Remember(m)
			case "recall":
				l = NewCalendarWindow(at(now), rate, w)
				if record := Record(last, at(now)); !Recall(l, at(now), record) {
					t.Fatalf("%v, %d, after %v: Recall refuses %v", w, limit, events, record)
				}
			}
		}
		ahead, n := rapid.Int64Range(0, 100).Draw(t, "ahead"), rapid.Int64Range(1, limit).Draw(t, "n")
		got, want := max(now, l.Next(at(now), ahead, n).Sub(start)), now
		for range ahead {
			want = leave(l, want, 1)
		}
		if want = max(want, l.Next(at(want), 0, n).Sub(start)); got != want {
			t.Fatalf("%v, %d, after %v: behind %d, %d leave at %v, want %v", w, limit, events, ahead, n, at(got), at(want))
		}
	})
}

// If somebody sets the wall clock back, no window comes twice: not for a limiter, not for one
// that was remembered, and not within an hour for one that was forgotten.
func TestAClockThatGoesBackOpensNoWindowTwice(t *testing.T) {
	w := days("Europe/Paris")
	noon := time.Date(2026, 6, 10, 12, 0, 0, 0, w.Zone.Location())
	l := NewCalendarWindow(noon, perDay(2), w)
	l.Take(noon, noon, 2)
	next := time.Date(2026, 6, 11, 0, 0, 0, 0, w.Zone.Location())
	if got := l.Next(noon, 0, 1); !got.Equal(next) {
		t.Fatalf("the third may leave at %v, want %v", got, next)
	}
	l.Take(next, next, 2)
	back := next.Add(-30 * time.Minute)
	want := next.AddDate(0, 0, 1)
	if got := l.Next(back, 0, 1); !got.Equal(want) {
		t.Errorf("half an hour back, the fifth may leave at %v, want %v", got, want)
	}
	m, _ := l.Memory(back)
	again := NewCalendarWindow(back, perDay(2), w)
	if again.Remember(m); !again.Next(back, 0, 1).Equal(want) {
		t.Errorf("remembered, the fifth may leave at %v, want %v", again.Next(back, 0, 1), want)
	}
	if m.Until.Sub(want) != time.Hour {
		t.Errorf("it may be forgotten at %v, want an hour after %v", m.Until, want)
	}
}

// A new rate holds at once, and what has left counts against it.
func TestCalendarWindowTakesANewRate(t *testing.T) {
	w := days("UTC")
	l := NewCalendarWindow(at(0), perDay(10), w)
	l.Take(at(0), at(0), 6)
	l.SetRate(at(0), perDay(4), 0)
	if got := l.Next(at(0), 0, 1).Sub(start); got != 24*time.Hour {
		t.Errorf("a fifth leaves after %v", got)
	}
	l.SetRate(at(0), perDay(7), 0)
	if got := l.Next(at(0), 0, 1).Sub(start); got > 0 {
		t.Errorf("a seventh leaves after %v", got)
	}
	l.SetRate(at(0), perDay(0), 0)
	if got := l.Next(at(0), 0, 1); got != Never {
		t.Errorf("under a rate of 0 one leaves at %v", got)
	}
	l.Take(at(0), at(0), 1)
	if m, _ := l.Memory(at(0)); m.Until != Never {
		t.Errorf("under a rate of 0 it may be forgotten at %v", m.Until)
	}
}

// A limiter that has served another key remembers nothing of that, also if the memory is of an
// earlier window.
func TestCalendarWindowForgetsWhatItWas(t *testing.T) {
	w := days("UTC")
	yesterday := NewCalendarWindow(at(0), perDay(10), w)
	yesterday.Take(at(0), at(0), 3)
	m, _ := yesterday.Memory(at(0))
	l := NewCalendarWindow(at(24*time.Hour), perDay(10), w)
	l.Take(at(24*time.Hour), at(24*time.Hour), 10)
	l.Remember(m)
	if got := l.Next(at(24*time.Hour), 0, 10).Sub(start); got > 24*time.Hour {
		t.Errorf("ten leave after %v, want at once", got)
	}
}

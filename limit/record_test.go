package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A new limiter that recalls the record of an old one lets nothing leave sooner than
// the old one would, to within a nanosecond, and later only by rounding; a log, by a grain.
func TestRecordGoesOn(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s := anySetting(t)
		l, now := busy(t, a, s)
		next := a.make(at(now), s)
		if !Recall(next, at(now), Record(l, at(now))) {
			t.Fatalf("%+v: Recall refuses the record %v", s, Record(l, at(now)))
		}
		late := time.Duration(1)
		if a.name == "sliding-log" {
			late += s.window/recordGrains + 1
		}
		for range rapid.IntRange(1, 20).Draw(t, "further") {
			n := anyCost(t, 2*a.whole(s))
			want, got := l.Next(at(now), 0, n).Sub(start), next.Next(at(now), 0, n).Sub(start)
			want, got = max(want, now), max(got, now)
			if slop := a.slop(s, 3); got < want-slop-1 || got > want+slop+late {
				t.Fatalf("%+v at %d: %d may leave at %d, want %d as before", s, now, n, got, want)
			}
			now = max(want, got)
			l.Take(at(now), at(now), n)
			next.Take(at(now), at(now), n)
			now += anyPause(t, s)
		}
	})
}

// A memory of counters is whole, also while something is owed.
func TestMemoryOfDebtIsWhole(t *testing.T) {
	forEach(t, func(t *rapid.T, a algorithm) {
		s := anySetting(t)
		l := a.make(at(0), s)
		l.Take(at(0), at(0), 5*a.whole(s)+3)
		if m, whole := l.Memory(at(0)); a.name != "sliding-log" && (!whole || !m.Until.After(at(0))) {
			t.Fatalf("%+v: whole is %v, until %v", s, whole, m.Until)
		}
	})
}

func TestRecordOfALogIsShort(t *testing.T) {
	s := setting{limit: 20_000, window: 24 * time.Hour}
	l := NewSlidingLog(at(0), s.rate(), s.window)
	for i := range 20_000 {
		now := time.Duration(i) * s.window / 20_000
		l.Take(at(now), at(now), 1)
	}
	record := Record(l, at(s.window-1))
	if len(record) > 2*(recordGrains+1) {
		t.Errorf("the record has %d numbers", len(record))
	}
	units := int64(0)
	for i := 1; i < len(record); i += 2 {
		units += record[i]
	}
	if units != 20_000 {
		t.Errorf("the record has %d units, want 20000", units)
	}
}

// What was given back whole leaves nothing in a record that Recall refuses.
func TestRecordWithoutWhatWasGivenBack(t *testing.T) {
	s := setting{limit: 10, window: time.Minute}
	for _, last := range []time.Duration{0, 20 * time.Second} {
		l := NewSlidingLog(at(0), s.rate(), s.window)
		l.Take(at(0), at(0), 5)
		l.Take(at(10*time.Second), at(10*time.Second), 4)
		l.Amend(at(15*time.Second), at(0), -5)
		if last > 0 {
			l.Take(at(last), at(last), 3)
		}
		now := at(30 * time.Second)
		next := NewSlidingLog(now, s.rate(), s.window)
		if record := Record(l, now); !Recall(next, now, record) {
			t.Fatalf("Recall refuses the record %v", record)
		}
		for n := int64(1); n <= 10; n++ {
			want, got := l.Next(now, 0, n), next.Next(now, 0, n)
			if late := latest(got, now).Sub(latest(want, now)); late < 0 || late > s.window/recordGrains+1 {
				t.Errorf("%d units may leave %v later than before the restart", n, late)
			}
		}
	}
}

// No record makes a limiter panic, or lets more leave than a new one would.
func FuzzRecall(f *testing.F) {
	f.Add(uint8(0), int64(0), int64(0), int64(0), int64(1))
	f.Add(uint8(2), int64(-5e9), int64(7), int64(0), int64(3))
	f.Add(uint8(3), int64(-mostRecorded), int64(mostRecorded), int64(-mostRecorded), int64(3))
	f.Add(uint8(4), int64(mostRecorded), int64(-mostRecorded), int64(mostRecorded), int64(3))
	f.Add(uint8(len(algorithms)), int64(-7), at(0).Unix(), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, which uint8, a, b, c, d int64) {
		s := setting{limit: 10, window: time.Second, burst: 10}
		for _, record := range [][]int64{{a, b, c}, {a, b, c, d}, {a, b}, {a}} {
			var l Limiter = NewCalendarWindow(at(0), perDay(s.limit), days("UTC"))
			if i := int(which) % (len(algorithms) + 1); i < len(algorithms) {
				l = algorithms[i].make(at(0), s)
			}
			if !Recall(l, at(0), record) {
				continue
			}
			l.Next(at(1), 3, 7)
			l.Take(at(1), at(1), 3)
			l.SetRate(at(2), s.rate(), 4)
			l.Next(at(time.Hour), 0, 1)
			l.Memory(at(time.Hour))
			Record(l, at(time.Hour))
		}
	})
}

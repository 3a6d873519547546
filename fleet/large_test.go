package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"shaper/tests/trial"
)

// largeWindows are classes in whose windows room comes bit by bit, slowly and fast, and one in which it comes at once.
func largeWindows(t *testing.T) []Class {
	return []Class{
		{Name: "slow", Algorithm: SlidingWindow, Rate: mustRate(t, "300 messages/10s"), Window: 10 * time.Second},
		{Name: "second", Algorithm: SlidingWindow, Rate: mustRate(t, "20 messages/1s"), Window: time.Second},
		{Name: "fast", Algorithm: SlidingWindow, Rate: mustRate(t, "1000 messages/100ms"), Window: 100 * time.Millisecond},
		{Name: "log", Algorithm: SlidingLog, Rate: mustRate(t, "300 messages/5s"), Window: 5 * time.Second},
		{Name: "short log", Algorithm: SlidingLog, Rate: mustRate(t, "20 messages/1s"), Window: time.Second},
		{Name: "fixed", Algorithm: FixedWindow, Rate: mustRate(t, "20 messages/1s"), Window: time.Second},
	}
}

// unitsOf returns how many units each member has sent since mark.
func (l *ledger) unitsOf() map[string]int64 {
	units := map[string]int64{}
	for _, d := range l.all[l.since:] {
		units[d.Member] += d.Units
	}
	return units
}

// TestLargeItemsBesideSmallOnes has members that are greedy: two with items of one unit, and two whose items need several. None
// gets less than half of an equal share, and the window is used.
func TestLargeItemsBesideSmallOnes(t *testing.T) {
	t.Parallel()
	for _, c := range largeWindows(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, c, 4, 1)
			for i, m := range s.members {
				m.greedy, m.size = true, []int64{1, 1, 3, 5}[i]
			}
			span := trial.Size[time.Duration](10, 100) * c.Window
			s.run(max(3*time.Second, 3*c.Window))
			s.ledger.mark()
			s.run(span)
			used := s.ledger.used()
			for name, n := range s.ledger.unitsOf() {
				if share := float64(n) / (c.Rate.PerSecond() * span.Seconds()); share < used/8 {
					t.Errorf("%s gets %.1f %% of the limit", name, 100*share)
				}
			}
			if len(s.ledger.unitsOf()) < 4 || used < 0.85 {
				t.Errorf("%v: %.1f %% of the limit is used", s.ledger.unitsOf(), 100*used)
			}
		})
	}
}

// TestRareItemBesideLargeOnes has a member whose items are rare and small beside one that takes each unit, and two that wait for
// several. The rare item waits for two items of each.
func TestRareItemBesideLargeOnes(t *testing.T) {
	t.Parallel()
	for _, c := range largeWindows(t) {
		if c.Algorithm != SlidingWindow { // in the others, room may come at once, after a window
			continue
		}
		s, rare := besideLarge(t, c)
		rare.arrive(2*c.Window + time.Second)
		s.run(20 * max(c.Window, time.Second))
		if most, wait := c.Rate.Time(2*11)+50*time.Millisecond, slices.Max(rare.waits); wait > most || len(rare.waits) < 5 {
			t.Errorf("%s: of %d rare items one waits for %v, at most %v", c.Name, len(rare.waits), wait, most)
		}
	}
}

// TestLargeItemOfASleeper stops a member that waits for several units. It holds nobody up, but for its share, which is held back
// soon.
func TestLargeItemOfASleeper(t *testing.T) {
	t.Parallel()
	for _, c := range largeWindows(t) {
		s, _ := besideLarge(t, c)
		s.members[2].asleep = true
		s.ledger.mark()
		s.run(3 * c.Window)
		if n := s.ledger.unitsOf(); n["m0"]+n["m1"] < c.Limit() || n["m0"] == 0 || n["m1"] == 0 {
			t.Errorf("%s: beside one that sleeps, the others send %v in three windows of %d", c.Name, n, c.Limit())
		}
	}
}

// besideLarge returns a fleet in which three members are greedy, with items of 1, 5 and 5 units, and one that has no items.
func besideLarge(t *testing.T, c Class) (s *sim, idle *simMember) {
	s = newSim(t, c, 4, 1)
	for i, m := range s.members[:3] {
		m.greedy, m.size = true, []int64{1, 5, 5}[i]
	}
	s.run(max(3*time.Second, 3*c.Window))
	return s, s.members[3]
}

// TestEarmark lets three members call one by one.
func TestEarmark(t *testing.T) {
	const start = Stamp(1_760_000_000_000_000) // a window begins
	class := &Class{Name: "a", Algorithm: SlidingWindow, Rate: mustRate(t, "10 messages/1s"), Window: time.Second}
	for name, do := range both(t) {
		number := int64(0)
		take := func(ms int64, member string, need, granted, till int64) {
			t.Helper()
			number++
			r, err := do(start+Stamp(ms*1000), &Call{Op: Take, Class: class, Member: member, Seq: number, Grace: time.Hour, Number: number, Wanted: need, Need: need})
			if err != nil {
				t.Fatal(err)
			}
			if r.Units != granted || granted == 0 && int64(r.Till-start)/1000 != till {
				t.Errorf("%s: at %d ms %s gets %d of %d units, and asks again at %d ms; want %d and %d", name, ms, member, r.Units, need, (r.Till-start)/1000, granted, till)
			}
		}
		take(-4000, "a", 1, 0, -2500) // what another store has granted ends
		for range 6 {
			take(0, "a", 1, 1, 0)
		}
		take(100, "b", 5, 0, 1000)
		for range 4 { // b cannot leave in this window
			take(200, "a", 1, 1, 0)
		}
		take(1000, "a", 1, 0, 1600) // after b
		take(1000, "b", 5, 0, 1500)
		take(1300, "a", 1, 0, 1600)
		take(1505, "b", 5, 5, 0)
		take(1620, "a", 1, 1, 0)
		take(1650, "b", 5, 0, 2000) // it is not behind
		take(1720, "a", 1, 1, 0)
		take(1750, "c", 5, 0, 2000)
		take(2001, "a", 1, 0, 2428) // after c
		take(2011, "a", 1, 1, 0)    // c has not come
		take(2100, "c", 5, 0, 2428)
		take(1100, "a", 1, 0, 2571) // the clock has been set back by a second, and what is earmarked ends at 1,438
		take(1450, "a", 1, 1, 0)
	}
}

// TestBucketForgetsTheGone has many members come, get a unit, and leave. What the store knows of them does not grow for ever.
func TestBucketForgetsTheGone(t *testing.T) {
	class := &Class{Name: "a", Algorithm: SlidingWindow, Rate: mustRate(t, "1000 messages/1h"), Window: time.Hour}
	store, now := newScriptStore(t, "a"), Stamp(1_760_000_000_000_000)
	for i := range 500 {
		now += 10_000
		for n, op := range []Op{Take, Leave} {
			c := &Call{Op: op, Class: class, Member: fmt.Sprint("m", i), Seq: int64(1 + n), Grace: time.Second, Number: 1, Wanted: 1, Need: 1}
			if _, err := store.do(now, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, key := range store.mini.Keys() {
		if fields, _ := store.mini.HKeys(key); len(fields) > 320 {
			t.Errorf("%s has %d fields", key, len(fields))
		}
	}
}

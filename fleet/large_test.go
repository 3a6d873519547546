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
		s.run(30 * max(c.Window, time.Second))
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

// TestLargeItemsOfSeveralSizes has greedy members that wait for several units each, of sizes that are no multiples of one another, or
// whose store is far away and whose windows are short. None gets less than a third of an equal share, and the window is used.
func TestLargeItemsOfSeveralSizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate     string
		window   time.Duration
		deadline time.Duration
		sizes    []int64
	}{
		{"104 messages/1097ms", 1097 * time.Millisecond, 0, []int64{1, 6, 4, 6, 4}},
		{"1206 messages/1159ms", 1159 * time.Millisecond, 0, []int64{1, 20, 69, 24, 64}},
		{"793 messages/1663ms", 1663 * time.Millisecond, 0, []int64{1, 38, 72, 34, 29}},
		{"500 messages/50ms", 50 * time.Millisecond, maxDeadline, []int64{1, 1, 5, 5}},
		{"1000 messages/100ms", 100 * time.Millisecond, maxDeadline, []int64{1, 1, 3, 5}},
		{"2000 messages/200ms", 200 * time.Millisecond, maxDeadline, []int64{1, 1, 5, 5}},
	} {
		s := newSim(t, Class{Name: "a", Algorithm: SlidingWindow, Rate: mustRate(t, c.rate), Window: c.window, Deadline: c.deadline}, len(c.sizes), 1)
		for i, m := range s.members {
			m.greedy, m.size = true, c.sizes[i]
		}
		s.run(3 * time.Second)
		s.ledger.mark()
		s.run(40 * c.window)
		used, units := s.ledger.used(), s.ledger.unitsOf()
		for _, m := range s.members {
			if share := float64(units[m.name]) / float64(40*s.class.Limit()); share < used/float64(3*len(c.sizes)) {
				t.Errorf("%s: %s, with items of %d units, gets %.1f %% of the limit", c.rate, m.name, m.size, 100*share)
			}
		}
		if used < 0.9 {
			t.Errorf("%s: %.1f %% of the limit is used", c.rate, 100*used)
		}
	}
}

// TestLargeItemThatCannotLeave has a member wait for more than there can be while the share of one that was killed is held back. It keeps
// no other from waiting for several units.
func TestLargeItemThatCannotLeave(t *testing.T) {
	t.Parallel()
	s := newSim(t, Class{Name: "a", Algorithm: SlidingWindow, Rate: mustRate(t, "200 messages/1s"), Window: time.Second}, 4, 1)
	for i, m := range s.members {
		m.greedy, m.size = true, []int64{1, 20, 160, 1}[i]
	}
	s.run(3 * time.Second)
	s.members[3].asleep = true
	s.run(5 * time.Second)
	s.ledger.mark()
	s.run(20 * time.Second)
	if n := s.ledger.unitsOf(); n["m1"] < 20*200/12 {
		t.Errorf("beside one that cannot leave, the others send %v of %d", n, 20*200)
	}
}

// aWindow calls a store in a window of a minute, which begins at 0. Member s is there first.
type aWindow struct {
	t      *testing.T
	do     func(Stamp, *Call) (Reply, error)
	class  *Class
	number int64
}

const windowStart = Stamp(1_760_000_040_000_000)

func newWindow(t *testing.T, algorithm Algorithm, do func(Stamp, *Call) (Reply, error)) *aWindow {
	w := &aWindow{t: t, do: do, class: &Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "1000 messages/min"), Window: time.Minute}}
	w.call(-3*time.Second, Call{Op: Beat, Member: "s"})
	return w
}

func (w *aWindow) call(at time.Duration, c Call) Reply {
	w.t.Helper()
	w.number++
	c.Class, c.Seq, c.Number, c.Grace = w.class, w.number, w.number, time.Hour
	r, err := w.do(windowStart.Add(at), &c)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *aWindow) take(at time.Duration, member string, need, wanted int64) Reply {
	w.t.Helper()
	return w.call(at, Call{Op: Take, Member: member, Need: need, Wanted: wanted})
}

// TestEarmarkAfterALoss has members see most of a fixed window used before the store lost it. What is too little for an item until the
// window ends goes to the others.
func TestEarmarkAfterALoss(t *testing.T) {
	for name, do := range both(t) {
		w := newWindow(t, FixedWindow, do)
		w.call(0, Call{Op: Take, Member: "s", Fenced: true, Known: 600, Lasts: time.Minute})
		for range 25 {
			w.take(2*time.Second, "s", 1, 10)
		}
		w.take(3*time.Second, "x", 200, 200)
		if r := w.take(4*time.Second, "s", 1, 10); r.Units != 10 {
			t.Errorf("%s: of the 150 units that are left, one that needs 1 gets %d until the window ends", name, r.Units)
		}
	}
}

// TestEarmarkOfTheGone has a member leave, or fall silent, for which units are earmarked. Nobody leaves them to it any longer.
func TestEarmarkOfTheGone(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		for name, do := range both(t) {
			w := newWindow(t, SlidingWindow, do)
			for range 90 {
				w.take(-time.Second, "s", 1, 10)
			}
			w.take(0, "s", 1, 50)
			w.number++
			grace := 100 * time.Millisecond
			c := Call{Op: Take, Class: w.class, Member: "x", Seq: w.number, Number: w.number, Need: 200, Wanted: 200, Grace: grace}
			if r, err := w.do(windowStart.Add(time.Millisecond), &c); err != nil || r.Till.Sub(r.Now) < 5*time.Second {
				t.Fatalf("%s: %v: the item asks again after %v", name, err, r.Till.Sub(r.Now))
			}
			if r := w.take(50*time.Millisecond, "s", 1, 1); r.Units != 0 {
				t.Errorf("%s: what is earmarked is not left", name)
			}
			if leaves {
				w.call(60*time.Millisecond, Call{Op: Leave, Member: "x"})
			}
			if r := w.take(3*time.Second, "s", 1, 1); r.Units != 1 {
				t.Errorf("%s: 3 s after the member has gone, another one is to come again %v later", name, r.Till.Sub(r.Now))
			}
		}
	}
}

// TestEarmarkAndDebts has a member tell the store what has left already, while units are earmarked for another: they count.
func TestEarmarkAndDebts(t *testing.T) {
	for name, do := range both(t) {
		w := newWindow(t, SlidingWindow, do)
		for range 90 {
			w.take(-time.Second, "s", 1, 10)
		}
		till := w.take(time.Second, "x", 200, 200).Till
		if r := w.take(2*time.Second, "s", 1, 10); r.Units != 0 {
			t.Errorf("%s: what is earmarked is not left", name)
		}
		if r := w.take(10*time.Second, "s", 0, 100); r.Units != 100 {
			t.Errorf("%s: of 100 units that have left, %d count", name, r.Units)
		}
		if r := w.take(till.Sub(windowStart), "x", 200, 200); r.Units != 0 {
			t.Errorf("%s: the other gets units that have left", name)
		}
	}
}

// TestDebtsEndNoEarmark has members tell the store what has left already, while the window is full and units are earmarked for an item: the
// member of that item, and one that has been served less far. The item waits still.
func TestDebtsEndNoEarmark(t *testing.T) {
	for name, do := range both(t) {
		for _, debtor := range []string{"x", "y"} {
			w := newWindow(t, SlidingWindow, do)
			w.class.Name = "a" + debtor
			w.call(-3*time.Second, Call{Op: Beat, Member: "s"})
			w.take(-time.Second, "x", 1, 10)
			for range 99 {
				w.take(-time.Second, "s", 1, 10)
			}
			w.take(time.Millisecond, "x", 200, 200)
			for _, at := range []time.Duration{2 * time.Millisecond, 2 * time.Second} { // there is no room, and then there is
				w.take(at, debtor, 0, 5)
				if r := w.take(3*time.Second, "s", 1, 1); r.Units != 0 {
					t.Errorf("%s: after %s has told of 5 units at %v, nobody leaves units to the item", name, debtor, at)
				}
			}
		}
	}
}

// TestLargeItemGivenUp has an item go that waited for many units, as its client does or after max_wait. Others have these units at once.
func TestLargeItemGivenUp(t *testing.T) {
	c := Class{Name: "a", Algorithm: SlidingWindow, Rate: mustRate(t, "1000 messages/min"), Window: time.Minute}
	s := newSim(t, c, 2, 1)
	s.members[0].greedy = true
	s.run(3 * time.Minute)
	large, marked := s.members[1], func() int64 { return s.model.classes["a"].buckets[""].service.earmark.units }
	large.offer(300)
	s.run(time.Second)
	if n := marked(); n != 300 {
		t.Fatalf("%d units are earmarked for an item of 300", n)
	}
	large.queue, large.costs = 0, nil
	large.lease.Want(large.local(), 0)
	large.pump()
	s.run(10 * time.Millisecond)
	if n := marked(); n != 0 {
		t.Errorf("%d units are earmarked for an item that has gone", n)
	}
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
		take(1100, "a", 1, 0, 2100) // the clock has been set back by a second, and what is earmarked ends at 1,438
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

package fleet

import (
	"testing"
	"time"
)

// TestStoreBeforeTheDisk cuts a member off for longer than a window, and its disk is slow. The store is back before that has
// kept what the share would let leave. So nothing leaves at the share any more, and the member does not wait for the disk.
func TestStoreBeforeTheDisk(t *testing.T) {
	for algorithm, judge := range map[Algorithm]func(*ledger) error{
		FixedWindow: (*ledger).windows, SlidingWindow: (*ledger).weighed, SlidingLog: (*ledger).within,
	} {
		class := Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "3000 messages/min"), Window: time.Minute}
		s := newSim(t, class, 2, 1)
		s.writes = time.Minute
		s.run(50 * time.Second)
		first, other := s.members[0], s.members[1]
		first.cut = true
		s.run(71 * time.Second)
		first.greedy = true
		first.pump()
		s.run(time.Second)
		if l := first.lease; first.machine.mode != OnShare || l.grant == nil {
			t.Fatalf("%v: the mode is %v, and the disk was asked for %v", algorithm, first.machine.mode, l.grant)
		}
		first.cut = false
		s.run(time.Second)
		if n := first.lease.Counts().Used; n < 500 {
			t.Errorf("%v: %d have left while the disk is slow", algorithm, n)
		}
		other.greedy = true
		other.pump()
		s.run(2 * time.Minute)
		if err := judge(&s.ledger); err != nil {
			t.Errorf("%v: %v", algorithm, err)
		}
	}
}

// TestLedgerKeepsForTheLaterWindow has a process use units of a window before it shares the class, and as many of the next one.
// The ledger keeps these, too, although they are no more.
func TestLedgerKeepsForTheLaterWindow(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_040, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}
	a.join(Class{Name: "a", Algorithm: FixedWindow, Rate: mustRate(t, "600 messages/min"), Window: time.Minute}, "m", 1)
	l := a.m.Lease("")
	for range 2 {
		until := a.now.Truncate(time.Minute).Add(time.Minute)
		l.Owe(a.now, 100, until)
		a.idle(time.Millisecond, false)
		if d := a.disk[""]; d.Units != 100 || !d.Until.Equal(until) {
			t.Errorf("the ledger has %+v, want 100 until %v", d, until)
		}
		a.idle(time.Minute, false)
	}
}

// TestLogCountsByTheSlowerClock has units leave at the share of a sliding log. The clock of the store is slower than that of the
// member, and the units count until their window has ended by both.
func TestLogCountsByTheSlowerClock(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_000, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}
	a.join(Class{Name: "a", Algorithm: SlidingLog, Rate: mustRate(t, "600 messages/min"), Window: time.Minute}, "m", 1)
	l := a.m.Lease("")
	l.spent.spend(a.now, &a.m.class, 1, a.m.absence.ends(0))
	if later := a.now.Add(time.Minute + time.Minute*drift/1_000_000); !l.spent.owes(later) {
		t.Error("a unit is forgotten that may count at the store")
	}
}

// TestLedgerKeepsAsLongAsItCounts lets all leave that may at the share of a short window, for some windows. At each departure the ledger
// has all that counts, for as long as it counts. So what a grant of a window lets leave never leaves by what was kept for the one before.
func TestLedgerKeepsAsLongAsItCounts(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		for _, window := range []time.Duration{300 * time.Millisecond, time.Second, 8 * time.Second} {
			a := &alone{t: t, now: time.Unix(1_760_000_000, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}
			a.join(Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "400 messages/s"), Window: window}, "m", 1)
			a.run(3*time.Second, true)
			l, left := a.m.Lease(""), 0
			for end := a.now.Add(5*window + 3*time.Second); a.now.Before(end); {
				n := a.run(time.Millisecond, false)
				if left += n; n == 0 || a.m.mode != OnShare {
					continue
				}
				kept, counts := a.disk[""], l.spent.until()
				if units := l.spent.units(a.now); units > kept.Units || counts.After(kept.Until) {
					t.Fatalf("%v, %v: %d units count for %v more, and the ledger has %d for %v", algorithm, window, units, counts.Sub(a.now), kept.Units, kept.Until.Sub(a.now))
				}
			}
			if left < 400 {
				t.Errorf("%v, %v: %d units have left", algorithm, window, left)
			}
		}
	}
}

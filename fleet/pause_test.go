package fleet

import (
	"fmt"
	"testing"
	"time"
)

// keyed is a fleet of greedy members, of which all but the last want key "a", and the last wants key "b".
func keyed(t *testing.T, class Class) *sim {
	s := newSim(t, class, 4, 1)
	for i, m := range s.members {
		m.greedy = true
		if m.lease = m.machine.Lease("a"); i == len(s.members)-1 {
			m.lease = m.machine.Lease("b")
		}
	}
	s.run(3 * time.Second)
	return s
}

// left returns how many units have left since a time, of key "a" and of key "b".
func (s *sim) left(since time.Duration) (a, b int64) {
	for _, d := range s.ledger.all {
		switch {
		case d.At < since:
		case d.Member == s.members[len(s.members)-1].name:
			b += d.Units
		default:
			a += d.Units
		}
	}
	return a, b
}

// TestPauseOfAKey lets one member hear that a key is too fast. The key pauses on all members, and no other key does. Units
// that members have in hand wait, too.
func TestPauseOfAKey(t *testing.T) {
	for _, name := range []string{"leaky", "fast", "gcra", "fixed", "sliding", "log"} {
		t.Run(name, func(t *testing.T) {
			class := classNamed(t, name)
			if name == "log" { // each second counts
				class.Rate, class.Window = mustRate(t, "200 messages/s"), time.Second
			}
			s := keyed(t, class)
			m := s.members[0]
			m.machine.Slow(m.local(), "a", 6*time.Second)
			s.after(0, m.pump)
			s.run(60 * time.Millisecond) // a beat later, all know
			since, calls := s.now, m.calls
			s.run(5900 * time.Millisecond)
			if a, b := s.left(since); a > 0 || b < int64(4*s.class.Rate.PerSecond()) {
				t.Errorf("in 5.9 s of the pause, %d units of the key leave, and %d of another one", a, b)
			}
			for _, m := range s.members[:3] {
				if left := m.machine.Pausing("a").Sub(m.local()); left < 30*time.Millisecond || left > 50*time.Millisecond {
					t.Errorf("%s says that the pause lasts for %v more", m.name, left)
				}
				if at := m.machine.Pausing("b"); at.After(m.local()) {
					t.Errorf("%s says that another key pauses until %v", m.name, at)
				}
			}
			if n := float64(m.calls-calls) / 5.9; n > 60 {
				t.Errorf("a member that pauses makes %.0f calls/s", n)
			}
			s.run(40 * time.Millisecond)
			since = s.now
			s.run(2 * s.class.Window)
			s.run(2 * time.Second)
			if a, _ := s.left(since); float64(a) < 1.5*s.class.Rate.PerSecond() {
				t.Errorf("after the pause, %d units leave in %v", a, s.now-since)
			}
		})
	}
}

// TestPauseOfAnIdleKey holds that a member hears of a pause with its first item of a key, however many pauses there were.
func TestPauseOfAnIdleKey(t *testing.T) {
	s := newSim(t, classNamed(t, "leaky"), 2, 1)
	s.run(3 * time.Second)
	first, second := s.members[0], s.members[1]
	for i := range 200 {
		first.machine.Slow(first.local(), fmt.Sprint("key", i), 20*time.Second)
		first.pump()
		s.run(50 * time.Millisecond)
	}
	if heard := second.machine.pauses.heard; heard < 100 || len(first.machine.pauses.untold) > 0 {
		t.Fatalf("a member has heard of %d pauses of 200; %d are not told", heard, len(first.machine.pauses.untold))
	}
	for _, key := range []string{"key0", "key199", "other"} {
		second.lease, second.queue = second.machine.Lease(key), 1
		second.pump()
		before := len(s.ledger.all)
		s.run(5 * time.Second)
		if left := len(s.ledger.all) - before; left > 0 != (key == "other") {
			t.Errorf("%d items of %s have left", left, key)
		}
		second.lease.Want(second.local(), 0, 0)
		second.queue = 0
	}
}

// TestPauseWhileTheStoreIsAway tells the store of what is left of a pause when it is back, and of nothing that is over.
func TestPauseWhileTheStoreIsAway(t *testing.T) {
	s := keyed(t, classNamed(t, "leaky"))
	m := s.members[0]
	s.down = true
	s.run(time.Second)
	m.machine.Slow(m.local(), "a", 4*time.Second)
	m.machine.Slow(m.local(), "over", time.Second)
	s.run(2 * time.Second)
	s.down = false
	s.run(time.Second)
	if left := s.members[1].machine.Pausing("a").Sub(s.members[1].local()); left < 950*time.Millisecond || left > 1050*time.Millisecond {
		t.Errorf("another member says that the pause lasts for %v more, want 1s", left)
	}
	if _, is := s.model.classes["leaky"].paused.until["over"]; is {
		t.Error("the store hears of a pause that is over")
	}
}

// TestPauseAndAClockSetBack has the store's clock set back by an hour during a pause. It lasts as long as it would have.
func TestPauseAndAClockSetBack(t *testing.T) {
	s := keyed(t, classNamed(t, "leaky"))
	m := s.members[0]
	m.machine.Slow(m.local(), "a", 3*time.Second)
	m.pump()
	s.run(100 * time.Millisecond)
	s.setClock(-time.Hour)
	s.run(6 * time.Second)
	since := s.now
	s.run(time.Second)
	if a, _ := s.left(since); a < 15 {
		t.Errorf("three seconds after the pause, %d units leave in a second", a)
	}
}

// TestPauseOutlastsTheStore has the store restart empty during a pause of the class, or of a key. The members tell it again, with the
// time that remains. A member that comes then hears of it.
func TestPauseOutlastsTheStore(t *testing.T) {
	for _, name := range []string{"leaky", "log"} {
		for _, key := range []string{"", "a"} {
			s := keyed(t, classNamed(t, name))
			m := s.members[0]
			m.machine.Slow(m.local(), key, time.Minute)
			m.pump()
			ends := s.stamp().Add(time.Minute)
			s.run(time.Second)
			s.restart()
			s.run(3 * time.Second)
			class := s.model.classes[name]
			till := Stamp(class.pause)
			if key != "" {
				till = Stamp(class.paused.until[key])
			}
			if late := till.Sub(ends); late < -time.Millisecond || late > 100*time.Millisecond {
				t.Errorf("%s: the new store knows a pause of key %q until %v after its end", name, key, late)
			}
			if class.paused.many > 4 {
				t.Errorf("%s: four members have told of %d pauses of one key", name, class.paused.many)
			}
			if key != "" && class.pause > 0 {
				t.Errorf("%s: the class pauses until %d", name, class.pause)
			}
		}
	}
}

// TestRepeatedPausesDisplaceNone has 100 keys pause on all members. While the store is away, one member alone hears of pauses, and
// the store comes back empty: it hears of these, whatever else it is told again, and first.
func TestRepeatedPausesDisplaceNone(t *testing.T) {
	s := keyed(t, classNamed(t, "leaky"))
	m := s.members[0]
	for i := range 100 {
		m.machine.Lease(fmt.Sprint("key", i)).paused = m.local().Add(time.Minute)
	}
	untold := func(from, to int) (told int) {
		for i, p := range m.machine.pauses.untold {
			n := 0
			if fmt.Sscanf(p.key, "alone%d", &n); p.key == fmt.Sprint("alone", n) && n >= from && n < to {
				told++
				if i >= maxUntold/2 {
					t.Errorf("pause %d of all is %s", i, p.key)
				}
			}
		}
		return told
	}
	for i := range 20 {
		m.machine.Slow(m.local(), fmt.Sprint("alone", i), time.Minute)
	}
	m.machine.repeatPauses(m.local())
	if n := untold(0, 20); n != 20 {
		t.Errorf("of 20 pauses that one member knows, %d remain to be told after the others", n)
	}
	for i := range 12 {
		m.machine.Slow(m.local(), fmt.Sprint("alone", 20+i), time.Minute)
	}
	if n := untold(0, 32); n != 32 || len(m.machine.pauses.untold) != maxUntold {
		t.Errorf("of 32 pauses that one member knows, %d remain; in all, %d", n, len(m.machine.pauses.untold))
	}
	for i := range 100 {
		m.machine.Slow(m.local(), fmt.Sprint("later", i), time.Minute)
	}
	if p := m.machine.pauses.untold; len(p) != maxUntold || p[0].key != "later36" || p[maxUntold-1].key != "later99" {
		t.Errorf("100 pauses later, %d remain, from %v to %v", len(p), p[0], p[len(p)-1])
	}
}

package fleet

import (
	"testing"
	"time"
)

// windowed returns a fleet of two that shares a window of 100 units, a few seconds after the window has begun.
func windowed(t *testing.T, algorithm Algorithm) *sim {
	c := Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "100 tokens/min"), Window: time.Minute}
	s := newSim(t, c, 2, 1)
	s.run(3*time.Minute + 5*time.Second - time.Duration(s.stamp())*time.Microsecond%time.Minute)
	return s
}

// offer lets an item come to a member.
func (m *simMember) offer(units int64) {
	m.next()
	m.costs[m.queue] = units
	m.queue++
	m.pump()
}

// charge says that an answer charges a member for more than has left.
func (m *simMember) charge(units int64) {
	m.lease.Take(m.local(), m.local(), units)
	m.sim.ledger.record(m, units)
	m.pump()
}

// TestDebtComesBeforeALargerItem has an answer charge a member while an item waits that no longer fits into the window, or comes
// right after it. The store hears of the charge at once, so that others do not use these units, too.
func TestDebtComesBeforeALargerItem(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		for _, first := range []bool{false, true} {
			s := windowed(t, algorithm)
			m, other := s.members[0], s.members[1]
			m.offer(60)
			s.run(time.Second)
			if first {
				m.charge(30)
			}
			m.offer(50)
			s.run(time.Second)
			if !first {
				m.charge(30)
			}
			s.run(time.Second)
			other.greedy = true
			other.pump()
			s.run(5 * time.Second)
			if mine, others := s.ledger.of(m.name, 0), s.ledger.of(other.name, 0); mine != 90 || others != 10 {
				t.Errorf("%v, the charge comes first: %v: %d and %d units have left of 100, want 90 and 10", algorithm, first, mine, others)
			}
		}
	}
}

// TestSmallerItemAfterALargerOne has a small item take the place of a large one for which a window has no room. It need not wait
// until the window ends.
func TestSmallerItemAfterALargerOne(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		s := windowed(t, algorithm)
		m := s.members[0]
		m.offer(60)
		s.run(time.Second)
		m.offer(50)
		s.run(time.Second)
		m.costs[0] = 40
		m.pump()
		s.run(time.Second)
		if n := s.ledger.of(m.name, 0); n != 100 {
			t.Errorf("%v: %d units have left of 100", algorithm, n)
		}
	}
}

// TestItemThatFillsTheWindow has a member get units for an item that is gone when they come, and another item that needs these
// and all that remains of the window. It leaves.
func TestItemThatFillsTheWindow(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		s := windowed(t, algorithm)
		m, other := s.members[0], s.members[1]
		other.offer(50)
		s.run(time.Second)
		m.offer(40)
		m.costs[0] = 50
		s.run(time.Second)
		if n := s.ledger.of(m.name, 0); n != 50 {
			t.Errorf("%v: %d units have left of 50", algorithm, n)
		}
	}
}

// TestRefusalIsTold has a member ask for an item while others have used up the window. Who waits hears of that, and until when.
func TestRefusalIsTold(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		s := windowed(t, algorithm)
		m, other := s.members[0], s.members[1]
		other.offer(100)
		s.run(time.Second)
		told := 0
		m.machine.changed = func(*Lease, time.Time) { told++ }
		m.offer(1)
		s.run(10 * time.Millisecond)
		until := m.lease.RefusedUntil(m.local(), 1).Sub(m.local())
		least, most := time.Millisecond, time.Minute/256
		if algorithm != SlidingLog { // which says when to ask again
			least, most = 53*time.Second, 54*time.Second
		}
		if told == 0 || until < least || until > most {
			t.Errorf("%v: it is told %d times that there is nothing for %v, want %v to %v", algorithm, told, until, least, most)
		}
	}
}

// refusedForTheSilent returns a fleet of two that has used 60 of the 100 units of an hour. One of the two does not reach the store, and its
// share is held back. So the other one is refused an item that it waits for.
func refusedForTheSilent(t *testing.T, algorithm Algorithm) (s *sim, m, silent *simMember) {
	c := Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "100 tokens/h"), Window: time.Hour}
	s = newSim(t, c, 2, 1)
	s.run(2*time.Hour + 5*time.Second - time.Duration(s.stamp())*time.Microsecond%time.Hour)
	m, silent = s.members[0], s.members[1]
	silent.offer(60)
	s.run(5 * time.Second)
	silent.cut = true
	s.run(4 * time.Second)
	m.offer(1)
	s.run(100 * time.Millisecond)
	if mine, others := s.ledger.of(m.name, 0), s.ledger.of(silent.name, 0); mine != 0 || others != 60 {
		t.Fatalf("%v: %d and %d units have left, want 0 and 60", algorithm, mine, others)
	}
	return s, m, silent
}

// TestRefusalForTheSilentIsBrief has a member refused because a silent one may use the rest of a window. It goes on when that one is
// back, and nobody expects before that it has to wait until the window ends.
func TestRefusalForTheSilentIsBrief(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		s, m, silent := refusedForTheSilent(t, algorithm)
		now := m.local()
		if until, at := m.lease.RefusedUntil(now, 1).Sub(now), m.lease.Estimate(now, 0, 1).Sub(now); until <= 0 || until > time.Second || at > time.Second {
			t.Errorf("%v: it is refused for %v, and expected in %v, want 1s at most", algorithm, until, at)
		}
		s.run(5 * time.Second)
		if mine := s.ledger.of(m.name, 0); mine != 0 {
			t.Errorf("%v: %d units have left while the other member is silent, want none", algorithm, mine)
		}
		silent.cut = false
		s.run(5 * time.Second)
		if mine := s.ledger.of(m.name, 0); mine != 1 {
			t.Errorf("%v: %d units have left since the other member is back, want 1", algorithm, mine)
		}
	}
}

// TestRefusalForTheSilentIsRemembered has the store lose all it knows after such a refusal. Who was refused tells it how much of the
// window is used, also if that was a while ago.
func TestRefusalForTheSilentIsRemembered(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		s, m, _ := refusedForTheSilent(t, algorithm)
		m.queue = 0
		m.lease.Want(m.local(), 0, 0)
		s.run(10 * time.Second)
		s.restart()
		m.greedy = true
		m.pump()
		s.run(5 * time.Second)
		if mine := s.ledger.of(m.name, 0); mine != 0 {
			t.Errorf("%v: %d units have left although the other member may use as many as remain", algorithm, mine)
		}
	}
}

// TestRefusalOfALargeItemHoldsNoSmallOne has a window refuse an item for which it has too little room. A smaller one, for which
// it has room, is expected at once.
func TestRefusalOfALargeItemHoldsNoSmallOne(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		s := windowed(t, algorithm)
		m := s.members[0]
		m.offer(95)
		s.run(time.Second)
		m.offer(10)
		s.run(time.Second)
		now := m.local()
		if small := m.lease.Estimate(now, 0, 1).Sub(now); small != 0 {
			t.Errorf("%v: one that has room is expected in %v", algorithm, small)
		}
		if large := m.lease.Estimate(now, 0, 10).Sub(now); large <= 0 {
			t.Errorf("%v: one that has no room is expected in %v", algorithm, large)
		}
	}
}

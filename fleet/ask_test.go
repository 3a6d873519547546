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

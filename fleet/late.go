package fleet

import "time"

// An item that leaves later than its slot allows is too close to the next slot, and that may be another member's. So the member tells
// the store by how much it was late. The store moves all slots that follow by so much, and each answer says how far slots have moved.
// A member moves what it has in hand when it hears of that. Slots that were granted in a row stay as far apart as they were, so nothing is
// lost. One gap is too short if the next member does not hear in time.

// tellLateness returns the call that tells the store of an item that has left late; false if it knows of all.
func (m *Machine) tellLateness(now time.Time) (c Call, ok bool) {
	if m.overdue == 0 {
		return c, false
	}
	c = m.call(now, Move, "")
	c.Number = m.seq // Seq is 0 while another call tells of the member
	c.Wanted, m.overdue = (m.overdue + time.Microsecond - 1).Microseconds(), 0
	return c, true
}

// hearMoves moves what is in hand by as much as an answer says. No slot begins later after the answer than after a grant, so a fence
// that follows holds for it.
func (m *Machine) hearMoves(now time.Time, r *Reply) {
	l := m.leases[""]
	if l == nil || r.Moved == 0 || r.Now < r.Recover {
		return
	}
	if l.move(now, m.link.clock.local(r.Now).Add(m.class.timing().horizon), r.Moved) {
		m.wake(l, now) // a block may be lost
		m.changed(l, now)
	}
}

package exchange

import "shaper/shaper"

// resume offers a message to its class again: one that has lost its turn, or is parked. It
// returns false if the message could not be sent now.
func (q *backlog) resume() bool {
	tag := q.ready[len(q.ready)-1]
	b := q.of(tag)
	switch {
	case b.lostTurns():
		if !q.lane.canSend() {
			return false
		}
		b.waiting.first.reenter(b)
	case b.parked.n > 0 && !b.holds() && b.parked.first.reenter(b):
	default:
		b.ready = false
		q.ready = q.ready[:len(q.ready)-1]
	}
	return true
}

// reenter offers a message to its class again. It returns false if the message stays parked;
// then another one waits in the class, and when it leaves there may be room.
func (m *message) reenter(b *classBacklog) bool {
	verdict := m.offer()
	switch {
	case verdict == shaper.Waits && m.place == missed:
		m.place = queued
		b.queued++
		return true
	case verdict != shaper.Leaves && verdict != shaper.Waits && m.place == parked && b.waiting.n > 0:
		return false
	}
	m.lane.backlog.take(m)
	switch verdict {
	case shaper.Leaves:
		m.leave(&m.item)
	case shaper.Waits:
		m.wait(queued)
	default:
		m.refuse(reasonOf(verdict))
	}
	return true
}

// followBehind handles the first message of the list behind. It returns false if its turn has
// not come.
func (q *backlog) followBehind() bool {
	l, m := q.lane, q.behind.first
	switch {
	case m.late, m.inOrder && q.before() > 0, !m.inOrder && l.isUp() && !l.x.link.Room():
		return false
	}
	q.take(m)
	if !m.inOrder {
		m.enter()
		return true
	}
	l.out.hold(m.bytes())
	l.wire.Sent(m.class, shaper.Cost{Bytes: int64(m.n)})
	m.release()
	return true
}

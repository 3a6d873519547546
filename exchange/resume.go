package exchange

import "shaper/shaper"

// resume offers a message to its class again, of the class that is the last one in ready: the first
// message that has lost its turn, or else the first that is parked. If neither may enter now, the
// class is no longer ready. resume returns false if the receiver could not take the message now.
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

// reenter offers a message to its class again, and takes it out of its list unless it goes on waiting
// there. It returns false if the message stays parked: there is no room, but another message of the
// lane waits in the class. When that message leaves, the parked message is offered again.
func (m *message) reenter(b *classBacklog) bool {
	verdict := m.offer()
	switch {
	case verdict == shaper.Waits && m.stage == missed:
		m.stage = queued
		b.queued++
		return true
	case verdict != shaper.Leaves && verdict != shaper.Waits && m.stage == parked && b.waiting.n > 0:
		return false
	}
	m.lane.backlog.take(m)
	switch verdict {
	case shaper.Leaves:
		m.leave(&m.item)
	case shaper.Waits:
		m.lane.backlog.add(m, queued)
	default:
		m.refuse(reasonOf(verdict))
	}
	return true
}

// followBehind takes the first message of the list behind, and lets it enter its class. A message that must
// not overtake others (inOrder), such as an unbind, belongs to no turn of a class: followBehind sends it.
// followBehind returns false if the message has to stay: it is late, others are before it, or the link has
// no room.
func (q *backlog) followBehind() bool {
	l, m := q.lane, q.behind.first
	if m.late || m.inOrder && q.before() > 0 || !m.inOrder && l.isUp() && !l.x.link.Room() {
		return false
	}
	q.take(m)
	if !m.inOrder {
		m.enter()
		return true
	}
	q.leaving = m
	l.out.hold(m.payload.bytes())
	q.leaving = nil
	if !l.x.stopped {
		l.wire.Sent(m.class, shaper.Cost{Bytes: int64(m.payload.n)})
	}
	m.release()
	return true
}

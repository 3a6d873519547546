package exchange

import "shaper/policy"

// keepSent keeps a message that was sent just now, if its class sends messages again
// that the provider refuses. It returns false if it does not keep the message.
func (m *message) keepSent() bool {
	l := m.lane
	q := &l.backlog
	retries := m.class != nil && m.repeatable && !l.x.stopped && m.class.Messages().Retry().Max > 0
	if !retries || l.x.protocol.isHTTP() && l.x.requests.unanswered() > 1 || !q.memory.keep(m.payload.holds()) {
		return false
	}
	m.payload.own()
	if m.number == 0 {
		q.numbers++
		m.number = q.numbers
	}
	if l.x.protocol.isHTTP() && !l.found.whole && m.attempts == 0 {
		q.growing = m
	} else {
		q.addSent(m)
	}
	return true
}

// addSent adds a message to those without an answer.
func (q *backlog) addSent(m *message) {
	m.stage = unanswered
	q.listOf(unanswered, m.tag).insert(m, nil)
	q.kept++
}

// grow adds a piece of its body to the message whose body still passes, if there is one. If the message
// becomes too large, it is not kept any more.
func (q *backlog) grow(piece []byte) {
	if q.growing == nil {
		return
	}
	p := &q.growing.payload
	n := p.copied(len(piece))
	more := max(int(policy.Holds(int64(n)))-p.holds(), 0)
	if n > int(policy.RetryHolds) || !q.memory.keep(more) {
		q.dropGrowing()
		return
	}
	p.append(piece)
}

// grown notes that all of the body has passed.
func (q *backlog) grown() {
	if m := q.growing; m != nil {
		q.growing = nil
		q.addSent(m)
	}
}

// dropGrowing forgets the message whose body still passes, if there is one.
func (q *backlog) dropGrowing() {
	if m := q.growing; m != nil {
		q.growing = nil
		q.memory.unkeep(m.payload.holds())
		m.release()
	}
}

// answered returns the message of a class that an answer is for, and keeps it no longer; nil if
// it was not kept.
func (q *backlog) answered(tag uint16, sequence uint32) *message {
	for m := q.of(tag).sent.first; m != nil; m = m.next {
		if m.sequence == sequence {
			q.unkeep(m)
			return m
		}
	}
	return nil
}

// unkeep takes a message out of those without an answer.
func (q *backlog) unkeep(m *message) {
	q.listOf(unanswered, m.tag).remove(m)
	m.stage = unlisted
	q.kept--
	q.memory.unkeep(m.payload.holds())
}

// forget keeps the messages that match no longer: the client gets their answers, whatever they say.
func (q *backlog) forget(match func(*message) bool) {
	if q.growing != nil && match(q.growing) {
		q.dropGrowing()
	}
	if q.kept == 0 {
		return
	}
	for _, b := range q.classes {
		for m := b.sent.first; m != nil; {
			next := m.next
			if match(m) {
				q.unkeep(m)
				q.departed(m.tag)
				m.release()
			}
			m = next
		}
	}
}

// forgetAll keeps no message any longer.
func (q *backlog) forgetAll() { q.forget(func(*message) bool { return true }) }

// reserve charges the memory of the input, in which an answer waits for the rest of its body. It
// returns false if there is no room.
func (a *answer) reserve(l *lane) bool {
	more := messageMemory + len(l.in.buf.Bytes) - a.reserved
	if !l.x.up.backlog.memory.keep(more) {
		return false
	}
	a.reserved += more
	return true
}

// unreserve gives back what was reserved.
func (a *answer) unreserve(l *lane) {
	l.x.up.backlog.memory.unkeep(a.reserved)
	a.reserved = 0
}

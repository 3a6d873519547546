package exchange

import (
	"time"

	"shaper/frame"
	"shaper/shaper"
	"shaper/stats"
)

// A class with retry sends a message again that the provider has refused as too fast, and the
// client does not see that answer. Only such an answer leads to that, and only on the
// connection on which it came: after a time-out, or after the connection has ended, nobody
// knows what became of a message.
//
// Until its answer, a message is kept. Meanwhile later messages of the same connection and
// class are held, beyond the number that retry.in_flight names. With 1, its default, the
// provider accepts messages of a connection and a class in the order in which they came. With
// more, a message that is sent again comes after those that were in flight with it, and before
// all others. A message that must not overtake, such as an unbind, waits for all that are kept,
// and so does the end of the stream. Requests of HTTP follow each other one by one.
//
// A message that is held is not in the queue of its class. If it were, its turn could come
// before that answer, and would be lost. So of each connection one message waits there, and the
// others in the connection; see hold.

// settle notes that the answer to a request of the lane was found. It reports whether the request is sent
// again; then the client does not get that answer.
func (q *backlog) settle(f *frame.Message) (again bool) {
	requests := &q.lane.x.requests
	refused := f.Throttle.Refused || requests.accounts.pass()
	m := q.answered(f.Tag, f.Sequence)
	if refused && (m == nil || f.Ends) {
		requests.notKept(f)
	}
	if m == nil {
		q.dropGrowing() // the answer came before the end of its request
		return false
	}
	again = refused && !f.Ends && m.again(f)
	q.departed(f.Tag)
	if again {
		requests.endUse(f)
	} else {
		m.release()
	}
	return again
}

// again sends a message again that an answer refuses, or puts the message back into its
// class. It returns false if the client has to have the answer.
func (m *message) again(f *frame.Message) bool {
	x, class, most, outcome := m.lane.x, m.class, m.class.Messages().Retry().Max, stats.RetryAgain
	switch {
	case most == 0:
		return false
	case int(m.attempts) >= most:
		outcome = stats.RetryLast
	case x.up.state == ended || x.getsNoAnswers(&x.up) || m.lane.backlog.moving != nil:
		outcome = stats.RetryTooLong
	default:
		if x.requests.heed(f); !m.putBack() { // the class pauses, and then the message enters it
			outcome = stats.RetryTooLong
		}
	}
	class.Tally().Retried(outcome, x.requests.refusalOf(f)) // m may have left, and the connection may have ended
	return outcome == stats.RetryAgain
}

// putBack puts a message before all messages of its class and connection that came later and
// have not left. It returns false if the class does not let it wait so long.
func (m *message) putBack() bool {
	l := m.lane
	b := l.backlog.of(m.tag)
	before := b.waiting.first
	for before != nil && before.number > 0 && before.number < m.number {
		before = before.next
	}
	isFirst := before == b.waiting.first
	if isFirst && b.queued > 0 && m.class.Cancel(l.x.now, &before.item) {
		before.stage = missed
		b.queued--
	}
	m.attempts++
	m.item.First = true
	m.item.Cost.Bytes, m.item.Held = int64(m.payload.n), int64(m.payload.n) // with its body
	at, verdict := missed, shaper.Waits
	if isFirst && b.queued == 0 && l.canSend() {
		at, verdict = queued, m.offer()
	}
	switch verdict {
	case shaper.Leaves:
		l.x.link.Again()
		m.leave(&m.item)
	case shaper.Waits:
		l.x.link.Again()
		l.backlog.addBefore(m, at, before)
	default:
		return false
	}
	return true
}

// answerPatience is how long a request may be in flight: as long as the most patient client
// waits.
const answerPatience = time.Minute

// stop ends the connection because the body is too long: after the refusal of its request, or at once
// if it is the body of an answer. It reports whether the lane goes on.
func (w *waste) stop() bool {
	l := w.lane
	if !l.isUp() {
		w.abandon()
		return false
	}
	l.state = discarding
	if frame.CloseAfterRefusal(l.scan) {
		l.x.refusals.endConnection()
	}
	return true
}

// hurry ends the connection if the rest of an answer takes too long.
func (w *waste) hurry() {
	if l := w.lane; l.state == swallowing && !l.isUp() && l.x.now.Sub(w.since) > answerPatience {
		w.abandon()
	}
}

// abandon ends the connection amid an answer.
func (w *waste) abandon() {
	w.lane.fail(frame.Abandon(w.lane.scan))
	w.lane.over()
}

// over ends a lane. If it is that of the provider, nothing is sent again any more, and what is kept gets no answer:
// what comes behind it goes on, and so does the end of the client, which may have come before.
func (l *lane) over() {
	if !l.isUp() {
		if l.state == swallowing {
			frame.Abandon(l.scan) // so that a refusal may follow
			l.found.open = false  // the link has forgotten the request of this answer; others of it may have left since
		}
		l.x.up.backlog.giveUp()
		l.x.expectNoAnswers()
		l.x.host.Revisit()
	}
	if l.x.stopped {
		return
	}
	l.finish()
	if up := &l.x.up; !l.x.stopped && up.backlog.n > 0 && l.x.getsNoAnswers(up) {
		up.cease()
	}
}

// forsake ceases the requests if the connection to the provider is dead, though what it had sent before still
// passes. Those that wait to be sent again are refused, as their answers say. It reports whether it did anything.
func (x *Exchange) forsake() bool {
	l := &x.up
	if x.stopped || l.state >= discarding || l.backlog.moving != nil || x.protocol.isHTTP() && x.down.state >= finishing || !x.getsNoAnswers(l) {
		return false
	}
	if l.backlog.giveUp(); !x.stopped {
		l.cease()
	}
	return true
}

// giveUp tells the client that messages were refused to which the provider gives no answer any more: the messages
// that wait to be sent again, and, if the client can still be told, the messages that have never left, also a message
// that has entered no class yet. After a reload these may wait behind other messages, which go on.
func (q *backlog) giveUp() {
	gaveUp, all := false, q.lane.x.canDecline()
	for tag, b := range q.classes {
		for _, of := range [...]*list{&b.waiting, &b.parked} {
			for m := of.first; m != nil && !q.lane.x.stopped; {
				next := m.next
				if m.attempts > 0 || all {
					gaveUp = true
					m.close = m.close || all
					q.giveUpOn(m)
				}
				m = next
			}
		}
		q.departed(uint16(tag))
	}
	if l := q.lane; all && !l.x.stopped && l.hasNew() {
		gaveUp = true
		if l.state == peeking {
			l.found.reread(l.x.link) // newMessage keeps the host
		}
		m := newMessage(l, l.class(), l.found.tag)
		m.close = true
		m.refuse(stats.Reset)
	}
	if gaveUp {
		q.lane.x.host.Revisit()
	}
}

// canDecline reports whether the client takes a refusal for the answer to what waits: it has or gets all other answers,
// none of them was the last one, and nothing remains of what the provider has sent.
func (x *Exchange) canDecline() bool {
	down := &x.down
	return x.protocol.isHTTP() && x.link.InFlight() == 0 && len(x.refusals.unwritten) == 0 && !down.found.message.Last &&
		down.in.len() == down.body.remaining
}

// giveUpOn refuses a message that waits to be sent. If the class has just let the message go, Take
// releases the message.
func (q *backlog) giveUpOn(m *message) {
	entered := m.stage == queued
	if q.take(m); entered && !m.drop() {
		q.lane.x.refusals.add(m.refused(stats.Reset))
		return
	}
	m.refuse(stats.Reset)
}

package exchange

import (
	"time"

	"shaper/shaper"
	"shaper/stats"
)

// handleCounted handles a counted message that was found: it leaves, waits, or is refused. A late
// message waits behind all others until the connection ends. If handleCounted returns false, the
// message stays in the input, with all that is behind it.
func (l *lane) handleCounted(late bool) bool {
	class, tag := l.class(), uint16(unlimited)
	if l.isUp() {
		if l.x.down.out.isFlooded() {
			return false // the client first has to read its refusals
		}
		tag = l.found.tag
	}
	if class == nil { // nothing limits messages to the client
		if f := l.found.follower; f != nil {
			l.found.follower = nil
			f.Sent(l.x.now)
		}
		l.body.passWhole()
		return true
	}
	if l.isUp() && l.x.protocol.isHTTP() && l.x.requests.unanswered() > 0 && class.Messages().Retry().Max > 0 {
		return false // a refusal of this request has to come last, or it could not be sent again
	}
	refusable := l.found.message.Refusable
	behindOthers := late || l.backlog.behind.n > 0 || l.isUp() && !l.x.link.Room()
	room := l.backlog.mayKeep(l.found.size, tag, behindOthers)
	if !room && (late && !refusable || l.x.protocol.makesWait(class, refusable)) {
		return false
	}
	l.state, l.found.peek = reading, nil
	m := newMessage(l, class, tag)
	m.late = late
	switch {
	case !room:
		m.refuse(stats.QueueFull)
	case behindOthers:
		l.backlog.add(m, behind)
	default:
		m.enter()
	}
	return true
}

// keepPlace queues a message that costs nothing and must not overtake those before it. If it
// returns false, the message stays in the input.
func (l *lane) keepPlace() bool {
	class := l.class()
	if class == nil || !l.x.protocol.allowsOvertaking() || !l.backlog.mayKeep(l.found.size, unlimited, true) {
		return false
	}
	l.state = reading
	m := newMessage(l, class, unlimited)
	m.late = l.backlog.late > 0
	l.backlog.add(m, behind)
	return true
}

// mayKeep reports whether this connection may hold another message of n bytes, if the message
// has to wait in its class or behind others. An empty list always has room for a first message,
// unless it is the list of a bucket: there may be any number of buckets.
func (q *backlog) mayKeep(n int, tag uint16, behindOthers bool) bool {
	b, x := q.of(tag), q.lane.x
	switch {
	case behindOthers && q.behind.n == 0, !behindOthers && b.isEmpty() && !x.classes.all[tag].isBucket:
		return true
	case !x.protocol.allowsOvertaking() && b.parked.n > 0:
		return false
	}
	return q.memory.hasRoom(n)
}

// enter offers a message to its class. It leaves at once, waits there, is parked, or is
// refused.
func (m *message) enter() {
	b, verdict := m.noteRetry(), shaper.Full
	switch {
	case m.class == nil: // the class went with a reload
		verdict = shaper.Leaves
	case b.parked.n > 0: // it would overtake these
	case b.countsItself() && !m.makesWait() && m.exceeds(b):
	case b.holds():
		m.hold(b)
		return
	default:
		verdict = m.offer()
	}
	m.act(verdict)
}

// offer asks the class of a message whether it may leave. If the sender is made to wait, one
// message of the lane may wait even if the queue has no room.
func (m *message) offer() shaper.Verdict {
	x := m.lane.x
	x.noteTime(x.host.Time())
	if m.held && m.heldTooLong() {
		return shaper.TooLong
	}
	m.item.Accepted, m.held = m.stage == missed && !m.held, false
	m.item.Patient = m.lane.backlog.of(m.tag).queued == 0 && m.makesWait()
	return m.class.Enter(x.now, &m.item)
}

// act does what the class has decided about a message that is in no list.
func (m *message) act(verdict shaper.Verdict) {
	switch {
	case verdict == shaper.Leaves:
		m.leave(&m.item)
	case verdict == shaper.Waits:
		m.lane.backlog.add(m, queued)
	case m.makesWait():
		m.lane.backlog.add(m, parked)
	default:
		m.refuse(reasonOf(verdict))
	}
}

// leave sends a message. item is what the class has let go: the item of this message, or the
// item of a later message whose turn this message takes, with the cost of this message.
func (m *message) leave(item *shaper.Item) {
	l := m.lane
	asks := l.isUp() && l.x.requests.send(m)
	if l.isUp() && l.x.protocol.isHTTP() {
		l.x.requests.charge(m.class, item)
	}
	if m.follower != nil {
		m.follower.Sent(l.x.now)
		m.follower = nil
	}
	l.backlog.leaving = m
	written := l.out.send(m.payload.bytes())
	l.backlog.leaving = nil
	item.Left(l.x.now)
	if written == 0 && l.wire.Shut() { // the receiver is down, so it never gets this message
		m.giveBack(l.x.now, item, item.Cost)
		l.x.requests.accounts.forgetLast()
	}
	if !l.x.stopped {
		l.wire.Sent(m.class, m.item.Cost)
	}
	if !asks || !m.keepSent() {
		m.release()
	}
	if asks && l.x.down.state >= finishing { // the provider may still take it, but has ended
		l.x.expectNoAnswers()
	}
}

// giveBack gives back a part of what the class has charged for an item of the message. Once the exchange has
// stopped it does not, since the bucket may serve another key by then.
func (m *message) giveBack(now time.Time, item *shaper.Item, part shaper.Cost) {
	if m.class != nil && !m.lane.x.stopped {
		m.class.Provider().Settle(now, item.Departed(), shaper.Cost{}.Minus(part))
	}
}

// canSend reports whether a message that leaves now can be sent: the receiver has taken almost
// all that was written before, and the link has room for another request.
func (l *lane) canSend() bool {
	return (len(l.out.held) <= MostHeld || l.wire.Writable()) && (!l.isUp() || l.x.link.Room())
}

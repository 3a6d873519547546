package exchange

import (
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
	"time"
)

// count goes on with the message that was found, and that costs something: it leaves,
// waits, or is refused. If count returns false, it stays where it is, with all behind it.
func (l *lane) count() bool {
	class, tag := l.class(), uint16(0)
	if l.isUp() {
		if l.x.down.out.isFlooded() {
			return false // the client is to read its refusals first
		}
		tag = l.found.tag
		l.body.flow.Move(l.x.now, class.Counting(unit.Bytes)) // for the body
	}
	if class == nil { // to the client, where nothing is limited
		if f := l.found.follower; f != nil {
			l.found.follower = nil
			f.Sent(l.x.now)
		}
		l.passWhole()
		return true
	}
	late := l.backlog.behind.n > 0 || l.isUp() && !l.x.link.Room()
	room := l.mayKeep(tag, late)
	if !room && MakesWait(class, l.x.protocol, l.found.message.Refusable) {
		return false
	}
	l.state = reading
	switch m := l.newMessage(class, tag); {
	case !room:
		m.refuse(stats.QueueFull)
	case late:
		m.wait(behind)
	default:
		m.enter()
	}
	if !l.x.stopped {
		l.in.consume(l.found.size)
	}
	return true
}

// keepPlace goes on with the message that was found, and that must not overtake those
// before it. It stays where it is if keepPlace returns false.
func (l *lane) keepPlace() bool {
	class := l.class()
	if class == nil || !l.x.readsOn() || !l.mayKeep(0, true) {
		return false
	}
	l.state = reading
	l.newMessage(class, 0).wait(behind)
	l.in.consume(l.found.size)
	return true
}

// mayKeep reports whether the message that was found has room in this connection, should
// it have to wait in its class, or behind others. The first one there always has.
func (l *lane) mayKeep(tag uint16, late bool) bool {
	b := l.backlog.of(tag)
	switch {
	case late && l.backlog.behind.n == 0, !late && b.isEmpty():
		return true
	case !l.x.readsOn() && b.parked.n > 0:
		return false
	}
	return l.backlog.hasRoom(l.found.size)
}

// enter offers a message to its class: it leaves at once, waits there, is parked, or is
// refused.
func (m *message) enter() {
	b, verdict := m.lane.backlog.of(m.tag), shaper.Full
	switch {
	case m.class == nil: // it went with a reload
		verdict = shaper.Leaves
	case b.lostTurns(): // the message would overtake them
		m.wait(missed)
		m.lane.backlog.departed(m.tag)
		return
	case b.parked.n == 0: // else it would overtake those
		verdict = m.offer()
	}
	m.judge(verdict)
}

// offer offers a message to its class. The only one of its lane that waits there needs no
// room if its sender is made to wait.
func (m *message) offer() shaper.Verdict {
	x := m.lane.x
	x.tell(x.host.Time())
	m.item.Accepted = m.place == missed
	m.item.Patient = m.lane.backlog.of(m.tag).queued == 0 && m.makesWait()
	return m.class.Enter(x.now, &m.item)
}

func (m *message) makesWait() bool { return MakesWait(m.class, m.lane.x.protocol, m.refusable) }

// judge does what the class says of a message that is in no list.
func (m *message) judge(verdict shaper.Verdict) {
	switch {
	case verdict == shaper.Leaves:
		m.leave(&m.item)
	case verdict == shaper.Waits:
		m.wait(queued)
	case m.makesWait():
		m.wait(parked)
	default:
		m.refuse(reasonOf(verdict))
	}
}

// leave sends a message whose class has let an item go, its own or another one's.
func (m *message) leave(item *shaper.Item) {
	l := m.lane
	if l.isUp() {
		l.x.link.Sent(m.frame(), l.x.now)
	}
	if m.follower != nil {
		m.follower.Sent(l.x.now)
	}
	l.out.send(m.bytes())
	item.Left(l.x.now)
	l.dir.Sent(m.class, m.item.Cost)
	m.release()
}

// unsent says that the item of the message has left its class, and nothing was sent.
func (m *message) unsent(now time.Time) {
	m.item.Left(now)
	if m.item.Asks {
		m.class.Answered(now, false)
	}
}

// takes reports whether a message that leaves now can be sent: the receiver has taken what
// was before it, but for a little, and the link has room for another request.
func (l *lane) takes() bool {
	return (len(l.out.held) <= MostHeld || l.dir.Writable()) && (!l.isUp() || l.x.link.Room())
}

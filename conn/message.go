package conn

import (
	"sync"
	"time"

	"shaper/buffer"
	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// waitingMessage is a message on its way: all of it, or its head.
type waitingMessage struct {
	item  shaper.Item
	lane  *lane
	class *shaper.Class  // nil: nothing limits it any more
	copy  *shaper.Copy   // for a policy in the shadow
	buf   *buffer.Buffer // of about its size; nil: it is the one that was found
	n     int

	list       *messageList // that it is in; nil: none
	prev, next *waitingMessage

	// What frame.Message says of it, without what lies in its bytes.
	command, sequence uint32
	tag               uint16
	refusable, close  bool
	inOrder           bool

	entered bool // its item is in the queue of its class
}

var messages = sync.Pool{New: func() any { return new(waitingMessage) }}

// newMessage returns the message that was found, of a class.
func (l *lane) newMessage(class *shaper.Class, tag uint16) *waitingMessage {
	m, f := messages.Get().(*waitingMessage), &l.message
	m.lane, m.class, m.n = l, class, l.size
	m.copy, l.copy = l.copy, nil
	m.command, m.sequence, m.tag = f.Command, f.Sequence, tag
	m.refusable, m.close, m.inOrder = f.Refusable, f.Close, f.InOrder
	if o := l.x.origin; o != nil && l.isUp() {
		m.rewrite(o)
	}
	m.item = shaper.Item{
		Cost: shaper.Cost{Messages: f.Cost, Bytes: int64(m.n)}, Held: int64(m.n), Settles: true, Owner: m,
		Asks: l.isUp() && l.x.asks(),
	}
	return m
}

func (m *waitingMessage) release() {
	if m.buf != nil {
		m.buf.Put()
	}
	*m = waitingMessage{}
	messages.Put(m)
}

// keep copies the bytes of a message that was found.
func (m *waitingMessage) keep() {
	if m.buf == nil {
		p := m.bytes()
		m.buf = buffer.Get(len(p))
		copy(m.buf.Bytes, p)
	}
}

// bytes returns those of the message.
func (m *waitingMessage) bytes() []byte {
	if m.buf == nil {
		return m.lane.unread()[:m.n]
	}
	return m.buf.Bytes[:m.n]
}

// frame returns what package frame is to know of the message, until the next call.
func (m *waitingMessage) frame() *frame.Message {
	f := &m.lane.x.current
	*f = frame.Message{Kind: frame.Counted, Cost: m.item.Cost.Messages, Refusable: m.refusable, Close: m.close,
		Command: m.command, Sequence: m.sequence, Tag: m.tag}
	return f
}

// count goes on with the message that was found, and that costs something: it leaves,
// waits, or is refused. It stays where it is, with all behind it, if count returns false.
func (l *lane) count() bool {
	class, tag := l.dir.flow.Class(), uint16(0)
	if l.isUp() {
		if l.x.down.isFlooded() {
			return false // the client is to read its refusals first
		}
		tag = l.x.classify(&l.message)
		class = l.x.classes[tag]
		l.x.passing = tag
		l.dir.flow.Move(time.Now(), class.Counting(unit.Bytes)) // for the body
	}
	if class == nil { // on the way back, where nothing is limited
		l.found, l.last = false, l.whole
		l.passWhole()
		return true
	}
	behind := l.backlog.behind.n > 0 || l.isUp() && !l.x.link.Room()
	room := l.mayKeep(tag, behind)
	if !room && l.waitsFor(class, l.message.Refusable) {
		return false
	}
	l.found = false
	switch m := l.newMessage(class, tag); {
	case !room:
		m.refuse(shaper.Full)
	case behind:
		m.wait(&l.backlog.behind)
	default:
		m.enter(time.Now())
	}
	if l.x.session.stage == relaying {
		l.consume(l.size)
	}
	return true
}

// keepPlace goes on with the message that was found, and that must not overtake those
// before it. It stays where it is if keepPlace returns false.
func (l *lane) keepPlace() bool {
	class := l.class()
	if class == nil || !l.readsOn() || !l.mayKeep(0, true) {
		return false
	}
	l.found = false
	l.newMessage(class, 0).wait(&l.backlog.behind)
	l.consume(l.size)
	return true
}

// readsOn reports whether anything may pass what waits, so that it is worth to read on.
func (l *lane) readsOn() bool { return l.x.protocol == policy.SMPP || l.x.protocol == policy.ISO8583 }

// mayKeep reports whether the message that was found has room in this connection, should
// it have to wait in its class, or behind others. The first one there always has.
func (l *lane) mayKeep(tag uint16, behind bool) bool {
	b := l.backlog.of(tag)
	switch {
	case behind && l.backlog.behind.n == 0, !behind && b.empty():
		return true
	case !l.readsOn() && b.parked.n > 0:
		return false
	}
	return l.backlog.hasRoom(l.size)
}

// waitsFor reports whether a message waits if the class has no room for it, and with it
// in the end whoever has sent it: as the class says; and if it cannot be refused, as what
// the provider delivers cannot.
func (l *lane) waitsFor(class *shaper.Class, refusable bool) bool {
	conf := class.Policy()
	return conf.OverflowFor(l.x.protocol) == policy.Wait || !refusable && conf.OverflowFor(policy.TCP) == policy.Wait
}

// enter has a message enter its class: it leaves at once, waits there, is parked, or is
// refused.
func (m *waitingMessage) enter(now time.Time) {
	b, verdict := m.lane.backlog.of(m.tag), shaper.Full
	switch {
	case m.class == nil: // it went with a reload
		verdict = shaper.Leaves
	case b.lostTurns(): // else it would overtake them
		m.wait(&b.waiting)
		m.lane.backlog.departed(m.tag)
		return
	case b.parked.n == 0: // else it would overtake
		verdict = m.offer(now)
	}
	switch {
	case verdict == shaper.Leaves:
		m.leave(now, &m.item)
	case verdict == shaper.Waits:
		m.waitEntered()
	case m.lane.waitsFor(m.class, m.refusable):
		m.wait(&b.parked)
	default:
		m.refuse(verdict)
	}
}

// offer offers a message to its class. The only one of its lane that waits there needs no
// room, if its sender is made to wait.
func (m *waitingMessage) offer(now time.Time) shaper.Verdict {
	b := m.lane.backlog.of(m.tag)
	m.item.Accepted = m.list == &b.waiting // it has lost its turn
	m.item.Patient = b.entered == 0 && m.lane.waitsFor(m.class, m.refusable)
	return m.class.Enter(now, &m.item)
}

// wait puts a message into a list of its lane.
func (m *waitingMessage) wait(in *messageList) {
	m.keep()
	m.lane.backlog.add(in, m)
}

// waitEntered is wait for a message that has entered its class.
func (m *waitingMessage) waitEntered() {
	m.wait(&m.lane.backlog.of(m.tag).waiting)
	m.enters()
}

// enters notes that the message, which is among those that wait, is in the queue of its
// class.
func (m *waitingMessage) enters() {
	m.entered = true
	m.lane.backlog.of(m.tag).entered++
}

// leave sends a message whose class has let an item go, its own or another one's.
func (m *waitingMessage) leave(now time.Time, item *shaper.Item) {
	l := m.lane
	if l.isUp() {
		l.x.link.Sent(m.frame(), now)
		l.x.session.copies.sent(m, now)
	}
	l.send(m.bytes())
	item.Left(time.Now())
	l.dir.count(m.class, m.item.Cost)
	m.release()
}

// unsent says that the item of the message has left its class, and nothing was sent.
func (m *waitingMessage) unsent(now time.Time) {
	m.item.Left(now)
	if m.item.Asks {
		m.class.Answered(now, false)
	}
}

// Leave implements shaper.Owner: it is the turn of the first message that waits for the
// class, which mostly is this one.
func (m *waitingMessage) Leave(now time.Time) {
	l := m.lane
	t := l.x.session
	defer t.server.rescue(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.list == nil { // it has been dropped
		m.unsent(now)
		m.release()
		return
	}
	tag := m.tag
	b := l.backlog.of(tag)
	m.entered = false
	b.entered--
	if l.takes() {
		first, item := b.waiting.first, m.item // which drop may release, if the session ends
		l.backlog.take(first)
		first.leave(now, &item)
	} else {
		m.unsent(now)
	}
	l.backlog.departed(tag)
	if l.moving != nil && t.stage == relaying {
		l.goOnMoving()
	}
	if t.stage == relaying {
		l.x.goOn(1)
	}
}

// move takes a message, which is in no queue, to another class; nil lets it leave.
func (m *waitingMessage) move(now time.Time, to *shaper.Class, tag uint16) {
	q := &m.lane.backlog
	if m.list == &q.behind { // its place there is its turn
		m.class, m.tag = to, tag
		return
	}
	parked := m.list == &q.of(m.tag).parked
	q.take(m)
	m.class, m.tag = to, tag
	switch b := q.of(tag); {
	case to == nil:
		m.leave(now, &m.item)
	case parked:
		q.add(&b.parked, m)
	case b.lostTurns() || !m.lane.takes(): // else it would overtake, or not be taken
		q.add(&b.waiting, m)
	default:
		m.moved(now)
	}
}

// moved lets a message enter the class to which it moves.
func (m *waitingMessage) moved(now time.Time) {
	m.item.Patient, m.item.Accepted = true, false // elsewhere it was: the policy here says whether it is refused
	switch verdict := m.class.Enter(now, &m.item); verdict {
	case shaper.Leaves:
		m.leave(now, &m.item)
	case shaper.Waits:
		m.waitEntered()
	default:
		m.refuse(verdict)
	}
}

// refuse answers a message here which its class has no room for.
func (m *waitingMessage) refuse(verdict shaper.Verdict) {
	l, reason := m.lane, stats.QueueFull
	if verdict == shaper.TooLong {
		reason = stats.MaxWait
	}
	if l.x.protocol == policy.HTTP { // else others may have been found since
		l.swallow = !l.whole
	}
	m.copy.Answered(time.Now())
	if m.buf == nil && !m.refusable { // the session ends, and counts as lost what it has read
		l.consume(m.n)
	}
	l.x.refuse(m.frame(), m.class, m.n, reason)
	m.release()
}

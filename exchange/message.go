package exchange

import (
	"sync"
	"time"

	"shaper/buffer"
	"shaper/frame"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// message is a message on its way: all of it, or its head.
type message struct {
	item     shaper.Item
	lane     *lane
	class    *shaper.Class  // nil: nothing limits it any more
	follower Follower       // nil: nobody
	buf      *buffer.Buffer // of about its size; nil: it is the one that was found
	n        int32          // its bytes

	// What frame.Message says of it, without what lies in its bytes.
	command, sequence uint32
	tag               uint16
	refusable, close  bool
	inOrder           bool

	place      place
	prev, next *message // of the list that it is in
}

// place is where a message is.
type place uint8

const (
	afoot  place = iota // in no list: it is at the front of the input, on its way out, or dropped
	queued              // it waits, in the queue of its class
	missed              // it waits, and has lost its turn there
	parked              // it waits until that queue has room
	behind              // it stands behind a message that it must not overtake, or for want of room in the link
)

var messages = sync.Pool{New: func() any { return new(message) }}

// newMessage returns the message that was found, of a class.
func (l *lane) newMessage(class *shaper.Class, tag uint16) *message {
	m, f := messages.Get().(*message), &l.found.message
	m.lane, m.class, m.n = l, class, int32(l.found.size)
	m.follower, l.found.follower = l.found.follower, nil
	m.command, m.sequence, m.tag = f.Command, f.Sequence, tag
	m.refusable, m.close, m.inOrder = f.Refusable, f.Close, f.InOrder
	if o := l.x.origin; o != nil && l.isUp() {
		m.rewrite(o)
	}
	m.item = shaper.Item{
		Cost: shaper.Cost{Messages: f.Cost, Bytes: int64(m.n)}, Held: int64(m.n), Settles: true, Owner: m, Asks: l.asks(),
	}
	return m
}

// rewrite has a request ask for a server other than the client wrote.
func (m *message) rewrite(o *frame.Origin) {
	p := m.bytes()
	m.buf = buffer.Get(len(p) + o.Growth())
	m.n = int32(len(o.AppendRequest(m.buf.Bytes[:0], p)))
}

func (m *message) release() {
	if m.buf != nil {
		m.buf.Put()
	}
	*m = message{}
	messages.Put(m)
}

// keep copies the bytes of a message that was found.
func (m *message) keep() {
	if m.buf == nil {
		p := m.bytes()
		m.buf = buffer.Get(len(p))
		copy(m.buf.Bytes, p)
	}
}

// bytes returns those of the message.
func (m *message) bytes() []byte {
	if m.buf == nil {
		return m.lane.in.bytes()[:m.n]
	}
	return m.buf.Bytes[:m.n]
}

// frame returns what the link is to know of the message, until the next call.
func (m *message) frame() *frame.Message {
	f := &m.lane.x.current
	*f = frame.Message{Kind: frame.Counted, Cost: m.item.Cost.Messages, Refusable: m.refusable, Close: m.close,
		Command: m.command, Sequence: m.sequence, Tag: m.tag}
	return f
}

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

// Leave implements shaper.Owner.
func (m *message) Leave(now time.Time) { m.lane.x.host.Turn(now, m) }

// Take implements Turn: the class lets the first message go that waits for it, which
// mostly is this one.
func (m *message) Take(now time.Time) {
	l := m.lane
	l.x.tell(now)
	if m.place != queued { // it has been dropped
		m.unsent(now)
		m.release()
		return
	}
	tag := m.tag
	b := l.backlog.of(tag)
	m.place = missed
	b.queued--
	if l.takes() {
		first, item := b.waiting.first, m.item // which drop may release, if the connection ends
		l.backlog.take(first)
		first.leave(&item)
	} else {
		m.unsent(now)
	}
	l.backlog.departed(tag)
	if l.backlog.moving != nil && !l.x.stopped {
		l.backlog.goOnMoving()
	}
	l.x.goOn(1)
}

package conn

import (
	"slices"
	"sync"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// waitingMessage is a message that waits for its class: all of it, or its head, in a buffer
// of about its size.
type waitingMessage struct {
	item  shaper.Item
	lane  *lane
	class *shaper.Class
	frame frame.Message // without what lies in the bytes that it was found in
	copy  *shaper.Copy  // for a policy in the shadow
	buf   *buffer
	n     int
}

var messages = sync.Pool{New: func() any { return new(waitingMessage) }}

func (m *waitingMessage) release() {
	if m.buf != nil {
		m.buf.put()
	}
	*m = waitingMessage{}
	messages.Put(m)
}

// count has the message that was found enter its class: it leaves at once, waits, or is
// refused; or stays where it is, with all behind it, where it returns false.
func (l *lane) count() bool {
	class := l.half.flow.Class()
	if l.isUp() {
		if !l.x.link.Room() || len(l.waiting) >= mostWaiting || l.x.down.isFlooded() {
			return false // an answer is to come first, or one of those leaves, or is read
		}
		l.message.Tag = l.x.classify(&l.message)
		class = l.x.classes[l.message.Tag]
		l.x.passing = l.message.Tag
		l.half.flow.Move(time.Now(), class.Counting(unit.Bytes)) // for the body
	}
	if class == nil { // on the way back, where nothing is limited
		l.found, l.last = false, l.whole
		l.passWhole()
		return true
	}
	m, now := l.newMessage(class), time.Now()
	switch class.Enter(now, &m.item) {
	case shaper.Leaves:
		l.found = false
		m.leave(l.unread()[:m.n], now)
		m.release()
	case shaper.Waits:
		l.found = false
		m.keep(l.unread()[:m.n])
		l.waiting = append(l.waiting, m)
	case shaper.Full:
		m.release()
		return l.overflow(class, stats.QueueFull)
	case shaper.TooLong:
		m.release()
		return l.overflow(class, stats.MaxWait)
	}
	l.consume(l.size)
	return true
}

// newMessage returns the message that was found, to enter a class.
func (l *lane) newMessage(class *shaper.Class) *waitingMessage {
	m := messages.Get().(*waitingMessage)
	m.lane, m.class, m.frame, m.copy, m.n = l, class, l.message, l.copy, l.size
	m.item = shaper.Item{
		Cost: shaper.Cost{Messages: m.frame.Cost, Bytes: int64(m.n)}, Held: int64(m.n), Settles: true, Owner: m,
		Busy: len(l.waiting) > 0, Patient: l.isPatient(class), Asks: l.isUp() && l.x.asks(),
	}
	return m
}

// mostWaiting bounds the messages of a session that wait: below what a link may have
// in flight.
const mostWaiting = 2048

// waitsFor reports whether the message that was found waits where the class has no
// room for it, and with it whoever has sent it: as the class says; and where it cannot
// be refused, as what the provider delivers cannot.
func (l *lane) waitsFor(class *shaper.Class) bool {
	conf := class.Policy()
	return conf.OverflowFor(l.x.protocol) == policy.Wait ||
		!l.message.Refusable && conf.OverflowFor(policy.TCP) == policy.Wait
}

// isPatient reports whether a message waits even where its class has no room: where
// its sender is made to wait, and nothing else of this session does in that class.
func (l *lane) isPatient(class *shaper.Class) bool {
	return l.waitsFor(class) &&
		!slices.ContainsFunc(l.waiting, func(m *waitingMessage) bool { return m.class == class })
}

// overflow does what the class says of the message that was found, and that it has no
// room for.
func (l *lane) overflow(class *shaper.Class, reason stats.Reason) bool {
	if l.waitsFor(class) {
		l.full = true
		return false
	}
	l.found, l.swallow = false, !l.whole
	l.copy.Answered(time.Now())
	l.x.refuse(&l.message, class, l.size, reason)
	if l.x.session.stage == relaying {
		l.consume(l.size)
	}
	return true
}

// keep copies the bytes of a message that waits, and forgets what lies in those that it
// was found in.
func (m *waitingMessage) keep(p []byte) {
	m.buf = getBuffer(len(p))
	copy(m.buf.bytes, p)
	f := &m.frame
	f.Method, f.Path, f.Host, f.SystemID, f.SourceAddr = nil, nil, nil, nil, nil
}

// leave sends a message that its class has let go.
func (m *waitingMessage) leave(p []byte, now time.Time) {
	l := m.lane
	if l.isUp() {
		l.x.link.Sent(&m.frame, now)
		l.x.session.copies.sent(m, now)
	}
	l.send(p)
	m.item.Left(time.Now())
	l.sent(m.class, shaper.Cost{Bytes: int64(m.n), Messages: m.frame.Cost})
}

// leaveQueue is leave for a message that has waited.
func (m *waitingMessage) leaveQueue(now time.Time) {
	m.dequeue()
	m.leave(m.buf.bytes[:m.n], now)
	m.release()
}

// dequeue takes the message out of those that wait, of which it mostly is the first.
func (m *waitingMessage) dequeue() {
	l := m.lane
	if i := slices.Index(l.waiting, m); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// Leave implements shaper.Owner: the message's time has come.
func (m *waitingMessage) Leave(now time.Time) {
	t := m.lane.x.session
	defer t.server.rescue(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	l := m.lane
	if t.stage != relaying {
		m.item.Left(now)
		if m.item.Asks {
			m.class.Answered(now, false)
		}
		m.release()
		return
	}
	m.leaveQueue(now)
	if l.full = false; t.stage == relaying {
		l.x.goOn(1)
	}
}

// move has a message that waits in a class which is gone enter another one.
func (m *waitingMessage) move(now time.Time, to *shaper.Class, tag uint16) {
	if !m.class.Cancel(now, &m.item) {
		return // it is leaving
	}
	m.class, m.frame.Tag = to, tag
	if to == nil {
		m.leaveQueue(now)
		return
	}
	m.item.Patient = true // it has been accepted
	switch to.Enter(now, &m.item) {
	case shaper.Leaves:
		m.leaveQueue(now)
	case shaper.Full:
		m.refuse(stats.QueueFull)
	case shaper.TooLong:
		m.refuse(stats.MaxWait)
	}
}

// refuse answers a message here that has waited elsewhere.
func (m *waitingMessage) refuse(reason stats.Reason) {
	l := m.lane
	m.dequeue()
	if l.x.protocol == policy.HTTP { // else others may have been found since
		l.swallow = !l.whole
	}
	m.copy.Answered(time.Now())
	l.x.refuse(&m.frame, m.class, m.n, reason)
	m.release()
}

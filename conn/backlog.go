package conn

import (
	"maps"
	"time"
	"unsafe"

	"shaper/buffer"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// backlog is what a lane has read and may not pass on yet. Reading goes on past it, so
// that what costs nothing and what belongs to another class need not wait for it. A
// message is in one of these lists:
//
//   - waiting, of its class: it has entered the class, which lets one go at a time, the
//     first of the list. If the provider does not take that one, the turn is lost, and it
//     stays the first;
//   - parked, of its class: that queue has no room for it, or others are parked before it;
//   - behind: it came behind a message that must not overtake, such as unbind, or the link
//     had no room for it.
//
// Each list is in the order of arrival, and every step takes constant time.
type backlog struct {
	classes []*classBacklog // by the tag of a message
	behind  messageList
	ready   []uint16 // the classes that something may enter again

	n      int // messages in all lists
	bytes  int // payload of those
	memory int // that they take
}

type classBacklog struct {
	waiting, parked messageList
	entered         int  // of those that wait, which are in the queue of the class
	ready           bool // it is in the list of those
}

// empty reports whether nothing of the class is there.
func (b *classBacklog) empty() bool { return b.waiting.n+b.parked.n == 0 }

// lostTurns reports whether messages wait, and none of them has a turn to come.
func (b *classBacklog) lostTurns() bool { return b.entered == 0 && b.waiting.n > 0 }

// of returns the lists of a class.
func (q *backlog) of(tag uint16) *classBacklog {
	for int(tag) >= len(q.classes) {
		q.classes = append(q.classes, new(classBacklog))
	}
	return q.classes[tag]
}

// hasRoom reports whether one more message of a length is within the bound of a
// connection.
func (q *backlog) hasRoom(n int) bool {
	return q.memory+messageMemory+buffer.Size(n) <= int(policy.ConnectionHolds)
}

// before returns how many messages are before those that stand behind.
func (q *backlog) before() int { return q.n - q.behind.n }

// add puts a message, which has its bytes, at the end of a list.
func (q *backlog) add(to *messageList, m *waitingMessage) {
	to.push(m)
	q.n++
	q.bytes += m.n
	q.memory += m.memory()
}

// take takes a message out of the list that it is in, if it is in one.
func (q *backlog) take(m *waitingMessage) {
	if m.list == nil {
		return
	}
	m.list.remove(m)
	if m.entered {
		m.entered = false
		q.of(m.tag).entered--
	}
	q.n--
	q.bytes -= m.n
	q.memory -= m.memory()
}

// departed notes that a message has left its class. So there may be room for what is
// parked; or nothing is left there whose turn another one could take.
func (q *backlog) departed(tag uint16) {
	b := q.of(tag)
	if again := b.parked.n > 0 || b.lostTurns(); again && !b.ready {
		b.ready = true
		q.ready = append(q.ready, tag)
	}
}

// messageMemory is what a message takes that waits, without the bytes of its buffer.
const messageMemory = policy.MessageHolds - buffer.Min

// It does not compile if that is too little.
const _ = messageMemory - unsafe.Sizeof(waitingMessage{}) - unsafe.Sizeof(buffer.Buffer{})

func (m *waitingMessage) memory() int { return messageMemory + len(m.buf.Bytes) }

// messageList is a list of messages in which their order is that of arrival.
type messageList struct {
	first, last *waitingMessage
	n           int
}

func (q *messageList) push(m *waitingMessage) {
	m.list, m.prev, m.next = q, q.last, nil
	if q.last == nil {
		q.first = m
	} else {
		q.last.next = m
	}
	q.last = m
	q.n++
}

func (q *messageList) remove(m *waitingMessage) {
	if m.prev == nil {
		q.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		q.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.list, m.prev, m.next = nil, nil, nil
	q.n--
}

// takes reports whether what leaves now can be sent: the socket has taken what was before
// it, but for a little, and the link has room for another request.
func (l *lane) takes() bool {
	return (len(l.out) <= mostHeld || l.dir.dst.Writable) && (!l.isUp() || l.x.link.Room())
}

// resume has one more message enter its class, of those that have lost their turn or are
// parked; false if none may.
func (l *lane) resume() bool {
	q := &l.backlog
	tag := q.ready[len(q.ready)-1]
	b := q.of(tag)
	switch {
	case b.lostTurns():
		if !l.takes() {
			return false
		}
		b.waiting.first.reenter(&b.waiting)
	case b.parked.n > 0 && b.parked.first.reenter(&b.waiting):
	default:
		b.ready = false
		q.ready = q.ready[:len(q.ready)-1]
	}
	return true
}

// reenter offers a message again to its class. It returns false if it stays where it is,
// since another one waits there that will tell when there is room.
func (m *waitingMessage) reenter(waiting *messageList) bool {
	q, now := &m.lane.backlog, time.Now()
	switch verdict := m.offer(now); {
	case verdict == shaper.Leaves:
		q.take(m)
		m.leave(now, &m.item)
	case verdict == shaper.Waits && m.list == waiting:
		m.enters()
	case verdict == shaper.Waits:
		q.take(m)
		m.waitEntered()
	case waiting.n > 0 && m.list != waiting:
		return false
	default:
		q.take(m)
		m.refuse(verdict)
	}
	return true
}

// followBehind goes on with the first message behind others; false if it is not its turn.
func (l *lane) followBehind() bool {
	m, now := l.backlog.behind.first, time.Now()
	switch {
	case m == nil, m.inOrder && l.backlog.before() > 0, !m.inOrder && l.isUp() && !l.x.link.Room():
		return false
	}
	l.backlog.take(m)
	if !m.inOrder {
		m.enter(now)
		return true
	}
	l.hold(m.bytes())
	l.dir.count(m.class, shaper.Cost{Bytes: int64(m.n)})
	m.release()
	return true
}

// dropWaiting drops the messages that wait.
func (l *lane) dropWaiting(reason stats.Reason) {
	now := time.Now()
	for _, b := range l.backlog.classes {
		l.dropList(&b.waiting, reason, now)
		l.dropList(&b.parked, reason, now)
	}
	l.dropList(&l.backlog.behind, reason, now)
}

// dropList drops the last ones first, so that no other becomes the next to leave.
func (l *lane) dropList(q *messageList, reason stats.Reason, now time.Time) {
	for m := q.last; m != nil; m = q.last {
		entered := m.entered
		l.backlog.take(m)
		if m.class != nil {
			m.class.CountDropped(reason, 1, int64(m.n))
		}
		if !entered || m.class.Cancel(now, &m.item) {
			m.release()
		} // else it is about to be told to leave, and will not
	}
}

// A move takes what waits in classes that are gone to another one.
type move struct {
	gone map[*shaper.Class]bool
	to   *shaper.Class // nil: what waits leaves
	tag  uint16        // of that class
}

// reroute moves what waits in classes that are gone to another one; nil lets it leave. One
// that is about to leave goes first, and until then nothing else happens in the lane: else
// what moves might overtake it.
func (l *lane) reroute(gone map[*shaper.Class]bool, to *shaper.Class, tag uint16) {
	if l.moving != nil {
		gone = maps.Clone(gone)
		maps.Copy(gone, l.moving.gone)
	}
	l.moving = &move{gone, to, tag}
	l.goOnMoving()
}

// goOnMoving moves what is to move, unless one of them is about to leave: then its Leave
// goes on.
func (l *lane) goOnMoving() {
	to := l.moving
	for _, b := range l.backlog.classes {
		if !l.moveList(&b.waiting, to) || !l.moveList(&b.parked, to) {
			return
		}
	}
	l.moveList(&l.backlog.behind, to)
	l.moving = nil
	l.backlog.departed(to.tag)
}

// moveList moves the messages of a list whose class is gone, in their order; false if one
// of them is about to leave.
func (l *lane) moveList(q *messageList, to *move) bool {
	now := time.Now()
	if !q.withdraw(now, to) {
		return false
	}
	for m, n := q.first, q.n; n > 0 && l.x.session.stage == relaying; n-- {
		next := m.next // what moves may come to the end of the same list
		if to.moves(m) {
			m.move(now, to.to, to.tag)
		}
		m = next
	}
	return true
}

// moves reports whether a message is one of those that move.
func (to *move) moves(m *waitingMessage) bool { return m.class != to.to && to.gone[m.class.Named()] }

// withdraw takes the messages that move out of the queue of their class, the last ones
// first, so that no other becomes the next to leave. It returns false if the first is about
// to be told to leave.
func (q *messageList) withdraw(now time.Time, to *move) bool {
	for m := q.last; m != nil; m = m.prev {
		if !m.entered || !to.moves(m) {
			continue
		}
		if !m.class.Cancel(now, &m.item) {
			return false
		}
		m.entered = false
		m.lane.backlog.of(m.tag).entered--
	}
	return true
}

package exchange

import (
	"maps"
	"time"

	"shaper/frame"
	"shaper/shaper"
	"shaper/unit"
)

// Reroute follows a reload, after Belong and Obey: what waits in a class that is gone
// moves to that of the connection, or to back; nil lets it leave.
func (x *Exchange) Reroute(now time.Time, gone map[*shaper.Class]bool, back *shaper.Class) {
	x.tell(now)
	x.down.join(back)
	if f := &x.up.found; x.up.state == finding && f.message.Kind == frame.Counted {
		x.up.classify()
	}
	if !x.stopped {
		x.up.reroute(gone, x.classes.all[x.classes.own], x.classes.own)
	}
	if !x.stopped {
		x.down.reroute(gone, back, 0)
	}
	if x.stopped {
		return
	}
	if gone[x.up.class().Named()] {
		x.up.found.tag = x.classes.own
	}
	if x.up.join(x.up.class().Counting(unit.Bytes)); !x.stopped {
		x.host.Revisit() // what was behind those that have left
	}
}

// A move takes what waits in classes that are gone to another one.
type move struct {
	gone map[*shaper.Class]bool
	to   *shaper.Class // nil: what waits leaves
	tag  uint16        // of that class
}

// moves reports whether a message is one of those that move.
func (to *move) moves(m *message) bool { return m.class != to.to && to.gone[m.class.Named()] }

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

// goOnMoving moves what is to move. If one of them is about to leave, its turn goes on.
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
func (l *lane) moveList(q *list, to *move) bool {
	if !l.withdraw(q, to) {
		return false
	}
	for m, n := q.first, q.n; n > 0 && !l.x.stopped; n-- {
		next := m.next // what moves may come to the end of the same list
		if to.moves(m) {
			m.move(to.to, to.tag)
		}
		m = next
	}
	return true
}

// withdraw takes the messages that move out of the queue of their class, the last ones
// first, so that no other becomes the next to leave. It returns false if the first is about
// to be told to leave.
func (l *lane) withdraw(q *list, to *move) bool {
	for m := q.last; m != nil; m = m.prev {
		if m.place != queued || !to.moves(m) {
			continue
		}
		if !m.class.Cancel(l.x.now, &m.item) {
			return false
		}
		m.place = missed
		l.backlog.of(m.tag).queued--
	}
	return true
}

// move takes a message, which is in no queue, to another class; nil lets it leave.
func (m *message) move(to *shaper.Class, tag uint16) {
	q, from := &m.lane.backlog, m.place
	if from == behind { // its place there is its turn
		m.class, m.tag = to, tag
		return
	}
	q.take(m)
	m.class, m.tag = to, tag
	switch {
	case to == nil:
		m.leave(&m.item)
	case from == parked:
		m.wait(parked)
	case q.of(tag).lostTurns() || !m.lane.takes(): // it would overtake, or not be taken
		m.wait(missed)
	default:
		m.moved()
	}
}

// moved lets a message enter the class to which it moves. It has been accepted, and waits
// regardless unless the policy says that it is to be refused.
func (m *message) moved() {
	m.item.Patient, m.item.Accepted = true, false // that was elsewhere
	switch verdict := m.class.Enter(m.lane.x.now, &m.item); verdict {
	case shaper.Leaves:
		m.leave(&m.item)
	case shaper.Waits:
		m.wait(queued)
	default:
		m.refuse(reasonOf(verdict))
	}
}

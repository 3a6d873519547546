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
	x.down.body.join(back)
	if f := &x.up.found; x.up.state == finding && f.message.Kind == frame.Counted {
		x.up.classify()
	}
	if !x.stopped {
		x.up.backlog.reroute(gone, x.classes.all[x.classes.own], x.classes.own)
	}
	if !x.stopped {
		x.down.backlog.reroute(gone, back, 0)
	}
	if x.stopped {
		return
	}
	if gone[x.up.class().Named()] {
		x.up.found.tag = x.classes.own
	}
	if x.up.body.join(x.up.class().Counting(unit.Bytes)); !x.stopped {
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
func (q *backlog) reroute(gone map[*shaper.Class]bool, to *shaper.Class, tag uint16) {
	if q.moving != nil {
		gone = maps.Clone(gone)
		maps.Copy(gone, q.moving.gone)
	}
	q.moving = &move{gone, to, tag}
	q.goOnMoving()
}

// goOnMoving moves what is to move. If one of them is about to leave, its turn goes on.
func (q *backlog) goOnMoving() {
	to := q.moving
	for _, b := range q.classes {
		if !q.moveList(&b.waiting, to) || !q.moveList(&b.parked, to) {
			return
		}
	}
	q.moveList(&q.behind, to)
	q.moving = nil
	q.departed(to.tag)
}

// moveList moves the messages of a list whose class is gone, in their order; false if one
// of them is about to leave.
func (q *backlog) moveList(of *list, to *move) bool {
	if !q.withdraw(of, to) {
		return false
	}
	for m, n := of.first, of.n; n > 0 && !q.lane.x.stopped; n-- {
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
func (q *backlog) withdraw(of *list, to *move) bool {
	for m := of.last; m != nil; m = m.prev {
		if m.place != queued || !to.moves(m) {
			continue
		}
		if !m.class.Cancel(q.lane.x.now, &m.item) {
			return false
		}
		m.place = missed
		q.of(m.tag).queued--
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

package exchange

import (
	"maps"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// Reroute follows a reload. The host calls it after Belong and Obey. What waits to the upstream in a
// class that is gone moves to where the rules lead now. What waits to the client moves to back;
// if that is nil, it leaves.
func (x *Exchange) Reroute(now time.Time, gone map[*shaper.Class]bool, back *shaper.Class) {
	x.noteTime(now)
	defer x.classes.quitAllUnused(x.now)
	x.down.body.join(back)
	x.up.reclassify()
	if !x.stopped {
		x.up.backlog.reroute(gone, nil)
	}
	if !x.stopped {
		x.down.backlog.reroute(gone, back)
	}
	if x.stopped {
		return
	}
	before := x.up.found.tag
	if gone[x.up.class().Named()] && !x.classes.leads(before) { // the head is gone too, so nobody knows its key any more
		x.up.found.tag = x.classes.own
		x.classes.use(x.classes.own)
		defer x.classes.disuse(x.now, before)
	}
	if x.up.state == waiting {
		x.up.body.findBucket()
	}
	if x.up.body.join(x.up.class().Counting(unit.Bytes)); !x.stopped {
		x.host.Revisit() // what stood behind the messages that have left
	}
}

// reclassify follows a reload with the message that is found and has entered no class yet.
func (l *lane) reclassify() {
	if !l.hasNew() {
		return
	}
	if l.state == peeking {
		l.found.reread(l.x.link) // since then the body has been read behind it
	}
	l.classify()
	l.found.charge(l.x.protocol, l.class(), l.scan.Message().Cost)
}

// A move takes the messages that wait in classes that are gone to other classes, after a reload. Messages to the provider
// go to where the rules lead now, and messages to the client go to one class. The backlog of a lane has one move at most; see
// driveMove.
type move struct {
	run  *run
	gone map[*shaper.Class]bool
	back *shaper.Class // of the messages to the client; nil: they leave
}

// target returns the class of the policy that a message belongs to now, and its tag.
func (to *move) target(m *message) (class *shaper.Class, tag uint16) {
	if !m.lane.isUp() {
		return to.back, unlimited
	}
	c := &m.lane.x.classes
	if tag = c.own; !m.inOrder && len(c.rules) > 0 {
		tag = c.ruledBy(m.seen())
	}
	return c.all[tag].class, tag
}

// includes reports whether a message has to move.
func (to *move) includes(m *message) bool {
	if !to.gone[m.class.Named()] {
		return false
	}
	class, _ := to.target(m)
	return class.Named() != m.class.Named() // if nothing leads elsewhere, it stays as the connection does
}

// reroute moves what waits in classes that are gone to other classes. If a message is
// about to leave, that message goes first. Until then the lane does nothing else, because
// what it sent might overtake the messages that move.
func (q *backlog) reroute(gone map[*shaper.Class]bool, back *shaper.Class) {
	if q.moving != nil {
		gone = maps.Clone(gone)
		maps.Copy(gone, q.moving.gone)
	}
	q.moving = &move{&q.lane.x.run, gone, back}
	q.forget(q.moving.includes)
	q.driveMove()
}

// driveMove moves what has to move. If one of these messages is about to leave, Take goes on.
func (q *backlog) driveMove() {
	to := q.moving
	for _, b := range q.classes {
		if !to.moveList(&b.waiting) || !to.moveList(&b.parked) {
			return
		}
	}
	to.moveList(&q.behind)
	q.moving = nil
}

// moveList moves the messages of one list that have to move, in their order. It returns false, and moves none, if the
// first of them is about to leave.
func (to *move) moveList(of *list) bool {
	if !to.withdraw(of) {
		return false
	}
	for m, n := of.first, of.n; n > 0 && !to.run.stopped; n-- {
		next := m.next // m may come to the end of this same list
		if to.includes(m) {
			to.moveOne(m)
		}
		m = next
	}
	return true
}

// withdraw takes the messages that move out of the queue of their class. The last one goes
// first, so that no other becomes the next to leave. It returns false if the first one is
// about to leave.
func (to *move) withdraw(of *list) bool {
	for m := of.last; m != nil; m = m.prev {
		if m.stage != queued || !to.includes(m) {
			continue
		}
		if !m.class.Cancel(to.run.now, &m.item) {
			return false
		}
		m.stage = missed
		m.lane.backlog.of(m.tag).queued--
	}
	return true
}

// moveOne moves a message, which is in no queue of a class, to another class, or to its bucket
// there; or the message leaves.
func (to *move) moveOne(m *message) {
	q, from, old, c := &m.lane.backlog, m.stage, m.tag, &m.lane.x.classes
	if from != behind { // otherwise it keeps its place: its turn does not depend on its class
		q.take(m)
	}
	if m.class, m.tag = to.target(m); m.lane.isUp() && c.all[m.tag].perMessage {
		m.tag = c.bucketOf(to.run.now, m.tag, m.seen())
		m.class = c.all[m.tag].class
	} else {
		c.use(m.tag)
	}
	c.disuse(to.run.now, old)
	m.item.First = false // it has had no turn before what waits there
	if !m.inOrder {
		to.charge(m)
	}
	m.noteRetry()
	switch {
	case from == behind:
	case m.class == nil:
		m.leave(&m.item)
	case from == parked:
		q.add(m, parked)
		q.departed(m.tag)
	case q.of(m.tag).holds() || !m.lane.canSend(): // it would overtake another one, or could not be sent
		q.add(m, missed)
		q.departed(m.tag)
	default:
		to.enter(m)
	}
}

// seen reads once more what rules and keys see of a message: the host and the field Host are those of the client.
func (m *message) seen() *policy.Message {
	var f frame.Message
	m.lane.x.link.Read(m.payload.bytes(), &f)
	msg := Seen(&f)
	if host, field, kept := m.payload.clientHost(); kept {
		msg.Host, msg.HostField = host, field
	}
	return &msg
}

// charge sets what a message costs in the class that it has moved to. Nobody has the body of the message
// any more: what the body said of the cost in a unit still counts.
func (to *move) charge(m *message) {
	x := m.lane.x
	var f frame.Message
	x.link.Read(m.payload.bytes(), &f)
	b := bill{protocol: x.protocol, message: &f, bytes: m.payload.bytes(), whole: m.whole, said: m.said}
	cost := b.cost(m.class, max(f.Cost, 1))
	m.item.Cost.Messages, m.item.Cost.Tokens = cost.Messages, cost.Tokens
}

// enter offers a message to the class that it has moved to. The message was accepted before a
// reload, so it waits even if there is no room; it is refused only if the policy says so.
func (to *move) enter(m *message) {
	m.item.Patient, m.item.Accepted = true, false // it was accepted in another class
	switch verdict := m.class.Enter(to.run.now, &m.item); verdict {
	case shaper.Leaves:
		m.leave(&m.item)
	case shaper.Waits:
		m.lane.backlog.add(m, queued)
	default:
		m.refuse(reasonOf(verdict))
	}
}

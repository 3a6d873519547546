package exchange

import (
	"time"

	"shaper/shaper"
)

// Leave implements shaper.Owner.
func (m *message) Leave(now time.Time) { m.lane.x.host.Turn(now, m) }

// Take implements Turn. The class lets m go. The first message that waits leaves: m, or an earlier
// message that has lost its turn. If the earlier message costs more than the class has charged,
// nothing leaves, and the earlier message enters the class again with its own cost.
func (m *message) Take(now time.Time) {
	l := m.lane
	l.x.noteTime(now)
	switch {
	case m.stage != queued:
		m.leaveDropped()
		return
	case m.item.Verdict() != shaper.Leaves:
		m.turnDown()
		return
	}
	tag := m.tag
	b := l.backlog.of(tag)
	m.stage = missed
	b.queued--
	switch first := b.waiting.first; {
	case !l.canSend() || b.isFull():
		m.loseTurn(now)
	case m.item.HasPerished(l.x.host.Time):
		m.loseTurn(now)
		b.enterFirst()
	case first.stage == missed && m.class.Covers(&m.item.Cost, &first.item.Cost):
		m.giveTurn(now, first)
	default:
		m.leaveUnsent(now)
		m.giveBack(now, &m.item, m.item.Cost)
		b.enterFirst()
	}
	l.turned(tag)
}

// loseTurn ends the turn of a message that is not sent. What its class has charged is lost, but for windows.
func (m *message) loseTurn(now time.Time) {
	m.leaveUnsent(now)
	m.class.Provider().Unused(now, m.item.Departed(), m.item.Cost)
}

// enterFirst offers the first message to its class again, before all others, if that message has lost
// its turn.
func (b *classBacklog) enterFirst() {
	if first := b.waiting.first; first.stage == missed {
		first.item.First = true
		first.reenter(b)
	}
}

// giveTurn lets the first message leave by the charge for m, which is enough. What it costs less is
// given back.
func (m *message) giveTurn(now time.Time, first *message) {
	item := m.item // a copy, because drop releases m if the connection ends
	if first != m {
		item.Cost = first.item.Cost
		m.giveBack(now, &m.item, m.item.Cost.Minus(item.Cost))
	}
	m.lane.backlog.take(first)
	first.leave(&item)
}

// turned goes on after a message that was in the queue of its class has left it.
func (l *lane) turned(tag uint16) {
	l.backlog.departed(tag)
	if l.backlog.moving != nil && !l.x.stopped {
		l.backlog.driveMove()
	}
	l.x.drive(1)
}

// leaveDropped ends the turn of a message that was dropped before it; see drop. A move may have waited for it.
func (m *message) leaveDropped() {
	l, tag := m.lane, m.tag
	m.release()
	l.turned(tag)
}

// turnDown handles a message that its class has taken out of the queue because the message would wait for too
// long. If the sender is made to wait, the message keeps its place, and enters again as an accepted message.
func (m *message) turnDown() {
	l, tag := m.lane, m.tag
	if m.makesWait() {
		m.stage = missed
		l.backlog.of(tag).queued--
	} else {
		l.backlog.take(m)
		m.refuse(reasonOf(m.item.Verdict()))
	}
	l.turned(tag)
}

// Leave implements shaper.Owner.
func (b *body) Leave(now time.Time) { b.lane.x.host.Turn(now, b) }

// Take implements Turn. The piece that waits leaves.
func (b *body) Take(now time.Time) {
	l := b.lane
	l.x.noteTime(now)
	if l.state != waiting { // it was dropped after Leave
		b.flow.Left(now)
		return
	}
	if b.act(b.flow.Turn(l.x.host.Time)); l.state == passing {
		b.passPiece()
	}
	l.x.drive(1)
}

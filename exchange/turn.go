package exchange

import "time"

// Leave implements shaper.Owner.
func (m *message) Leave(now time.Time) { m.lane.x.host.Turn(now, m) }

// Take implements Turn. The class lets one message go. The first one that waits leaves; it is
// this one, unless an earlier one has lost its turn.
func (m *message) Take(now time.Time) {
	l := m.lane
	l.x.noteTime(now)
	if m.place != queued { // it was dropped after Leave
		m.leaveUnsent(now)
		m.release()
		return
	}
	tag := m.tag
	b := l.backlog.of(tag)
	m.place = missed
	b.queued--
	if l.canSend() && !b.isFull() {
		first, item := b.waiting.first, m.item // a copy, because drop releases m if the connection ends
		l.backlog.take(first)
		first.leave(&item)
	} else {
		m.leaveUnsent(now)
	}
	l.backlog.departed(tag)
	if l.backlog.moving != nil && !l.x.stopped {
		l.backlog.driveMove()
	}
	l.x.drive(1)
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
	l.state = passing
	b.passPiece()
	l.x.drive(1)
}

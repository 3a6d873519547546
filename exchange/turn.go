package exchange

import "time"

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

// Leave implements shaper.Owner.
func (b *body) Leave(now time.Time) { b.lane.x.host.Turn(now, b) }

// Take implements Turn: the piece that waits may go.
func (b *body) Take(now time.Time) {
	l := b.lane
	l.x.tell(now)
	if l.state != waiting { // it has been dropped
		b.flow.Left(now)
		return
	}
	l.state = passing
	b.passAsked()
	l.x.goOn(1)
}

package exchange

import (
	"time"

	"shaper/shaper"
	"shaper/stats"
)

// Bytes that are no message pass in pieces, through the flow of the lane: bodies,
// responses of HTTP, what follows an upgrade. The flow is in the class that counts bytes,
// for the message they belong to.

// pass passes n bytes on, as far as classes let them that count bytes. ends says that the
// message ends with them.
func (l *lane) pass(n int, ends bool) bool {
	if l.state == swallowing {
		l.in.consume(n)
		if ends {
			l.state = reading
		}
		return true
	}
	l.due, l.ends, l.state = n, ends, passing
	return l.passDue()
}

// passDue passes on what may be, and has the rest wait for its class piece by piece.
func (l *lane) passDue() bool {
	for l.state == passing {
		if l.asked == 0 { // else it has left its class when a reload moved it
			l.ask()
		}
		if l.state == passing {
			l.passAsked()
		}
	}
	return l.state != waiting && !l.x.stopped
}

// ask offers the next piece of what is due to its class.
func (l *lane) ask() {
	l.asked = l.due
	if class := l.flow.Class(); class != nil {
		l.asked = min(l.due, int(class.Piece()))
	}
	l.judge(l.flow.Ask(l.x.now, shaper.Cost{Bytes: int64(l.asked)}, l.busy))
}

// judge does what the class says of the piece.
func (l *lane) judge(verdict shaper.Verdict) {
	switch verdict {
	case shaper.Leaves:
		l.state = passing
	case shaper.Waits:
		l.state = waiting
	default:
		n := l.asked
		l.asked, l.due, l.state = 0, 0, finishing
		l.in.consume(n)
		l.flow.Class().CountRefused(reasonOf(verdict), int64(n))
		l.x.host.Fail(stats.Overflow)
	}
}

// passAsked passes on the piece that its class has let go.
func (l *lane) passAsked() {
	n := l.asked
	l.asked, l.due = 0, l.due-n
	p := l.in.bytes()[:n]
	if l.flow.Class() != nil {
		l.send(p)
		l.flow.Left(l.x.now)
	} else {
		l.hold(p)
	}
	if l.x.stopped {
		return
	}
	l.dir.Sent(l.class(), shaper.Cost{Bytes: int64(n)})
	l.busy = l.due > 0 || l.dir.Readable()
	if l.in.consume(n); l.due > 0 {
		return
	}
	l.state = reading
	if l.ends {
		l.finished()
	}
}

// Leave implements shaper.Owner.
func (l *lane) Leave(now time.Time) { l.x.host.Turn(now, l) }

// Take implements Turn: the piece that waits may go.
func (l *lane) Take(now time.Time) {
	l.x.tell(now)
	if l.state != waiting { // it has been dropped
		l.flow.Left(now)
		return
	}
	l.state = passing
	l.passAsked()
	l.x.goOn(1)
}

// join moves the flow into another class, with the piece that waits.
func (l *lane) join(class *shaper.Class) {
	verdict := l.flow.Move(l.x.now, class)
	if l.state != waiting || verdict == shaper.Waits {
		return
	}
	if l.judge(verdict); !l.x.stopped {
		l.x.host.Revisit()
	}
}

// redirect has the response that was found lead the client back here, if it would lead to
// the upstream.
func (l *lane) redirect() {
	if o := l.x.origin; o != nil {
		n := len(o.Redirect(l.in.bytes()[:l.found.size]))
		l.in.off += l.found.size - n
		l.found.size = n
	}
}

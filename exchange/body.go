package exchange

import (
	"shaper/shaper"
	"shaper/stats"
)

// body is the bytes of a lane that are no message: bodies, responses of HTTP, what follows
// an upgrade. They pass in pieces, through a flow in the class that counts bytes, for the
// message they belong to.
type body struct {
	lane  *lane
	flow  shaper.Flow
	due   int  // bytes at the front of the input that are to be passed on
	asked int  // of those, the piece that is offered to the class
	ends  bool // the message ends with the bytes that are due
	busy  bool // more bytes were there when the last piece left
}

// pass passes n bytes on, as far as classes let them that count bytes. ends says that the
// message ends with them.
func (b *body) pass(n int, ends bool) bool {
	l := b.lane
	if l.state == swallowing {
		l.in.consume(n)
		if ends {
			l.state = reading
		}
		return true
	}
	b.due, b.ends, l.state = n, ends, passing
	return b.passDue()
}

// passDue passes on what may be, and has the rest wait for its class piece by piece.
func (b *body) passDue() bool {
	l := b.lane
	for l.state == passing {
		if b.asked == 0 { // else it has left its class when a reload moved it
			b.ask()
		}
		if l.state == passing {
			b.passAsked()
		}
	}
	return l.state != waiting && !l.x.stopped
}

// ask offers the next piece of what is due to its class.
func (b *body) ask() {
	b.asked = b.due
	if class := b.flow.Class(); class != nil {
		b.asked = min(b.due, int(class.Piece()))
	}
	x := b.lane.x
	x.tell(x.host.Time())
	b.judge(b.flow.Ask(x.now, shaper.Cost{Bytes: int64(b.asked)}, b.busy))
}

// judge does what the class says of the piece.
func (b *body) judge(verdict shaper.Verdict) {
	l := b.lane
	switch verdict {
	case shaper.Leaves:
		l.state = passing
	case shaper.Waits:
		l.state = waiting
	default:
		n := b.asked
		b.asked, b.due, l.state = 0, 0, finishing
		l.in.consume(n)
		b.flow.Class().CountRefused(reasonOf(verdict), int64(n))
		l.x.host.Fail(stats.Overflow)
	}
}

// passAsked passes on the piece that its class has let go.
func (b *body) passAsked() {
	l := b.lane
	n := b.asked
	b.asked, b.due = 0, b.due-n
	p := l.in.bytes()[:n]
	if b.flow.Class() != nil {
		l.out.send(p)
		b.flow.Left(l.x.now)
	} else {
		l.out.hold(p)
	}
	if l.x.stopped {
		return
	}
	l.dir.Sent(l.class(), shaper.Cost{Bytes: int64(n)})
	b.busy = b.due > 0 || l.dir.Readable()
	if l.in.consume(n); b.due > 0 {
		return
	}
	l.state = reading
	if b.ends {
		l.finished()
	}
}

// join moves the flow into another class, with the piece that waits.
func (b *body) join(class *shaper.Class) {
	l := b.lane
	verdict := b.flow.Move(l.x.now, class)
	if l.state != waiting || verdict == shaper.Waits {
		return
	}
	if b.judge(verdict); !l.x.stopped {
		l.x.host.Revisit()
	}
}

// passWhole passes on the message that was found, which nothing holds up.
func (l *lane) passWhole() {
	l.state, l.body.ends = reading, l.found.whole
	l.out.hold(l.in.bytes()[:l.found.size])
	l.dir.Sent(l.class(), shaper.Cost{Bytes: int64(l.found.size)})
	if !l.x.stopped {
		l.in.consume(l.found.size)
		l.finished()
	}
}

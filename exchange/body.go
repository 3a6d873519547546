package exchange

import (
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// body passes the bytes of a lane that are not counted messages: bodies, responses of HTTP,
// and what follows an upgrade. They pass in pieces through a flow, which is in the class of
// their message if that class counts bytes.
type body struct {
	lane      *lane
	flow      shaper.Flow
	remaining int  // bytes at the front of the input that may be offered to the class
	piece     int  // of these, the bytes that are offered now
	busy      bool // more bytes were there when the last piece left
}

// pass passes the first n bytes of the input on, as the class lets them. ends says that the
// message ends with them. It returns false if a piece has to wait.
func (b *body) pass(n int, ends bool) bool {
	l := b.lane
	if l.state == swallowing {
		l.waste.take(n, ends)
		return true
	}
	b.remaining, l.found.ends, l.state = n, ends, passing
	return b.passRemaining()
}

// passRemaining passes the remaining bytes on, piece by piece, until one has to wait.
func (b *body) passRemaining() bool {
	l := b.lane
	for l.state == passing {
		if b.piece == 0 { // otherwise a reload moved the piece, and let it go
			b.offerPiece()
		}
		if l.state == passing {
			b.passPiece()
		}
	}
	return l.state != waiting && !l.x.stopped
}

// offerPiece offers the next piece of the remaining bytes to the class.
func (b *body) offerPiece() {
	x := b.lane.x
	x.noteTime(x.host.Time())
	if b.flow.Class().Messages().HaveBuckets() {
		b.findBucket()
		b.flow.Move(x.now, b.lane.class())
	}
	b.piece = b.remaining
	if class := b.flow.Class(); class != nil {
		b.piece = min(b.remaining, int(class.Piece()))
	}
	b.act(b.flow.Ask(x.now, shaper.Cost{Bytes: int64(b.piece)}, b.busy))
}

// findBucket gives the bytes that pass a bucket, if their class has one for each key of a message and they are in none. So it
// is if a reload has moved them there after their head had left: theirs is the bucket without a key.
func (b *body) findBucket() {
	l := b.lane
	if before := l.found.tag; l.class().Counting(unit.Bytes).Messages().HaveBuckets() {
		l.found.tag = l.x.classes.bucketOf(l.x.now, before, nil)
		l.x.classes.disuse(l.x.now, before)
	}
}

// act does what the class has decided about the piece.
func (b *body) act(verdict shaper.Verdict) {
	l := b.lane
	switch verdict {
	case shaper.Leaves:
		l.state = passing
	case shaper.Waits:
		l.state = waiting
	default:
		n := b.piece
		b.piece, b.remaining, l.state = 0, 0, finishing
		l.in.consume(n)
		b.flow.Class().Tally().Refused(reasonOf(verdict), int64(n))
		l.x.host.Fail(stats.Overflow)
	}
}

// passPiece passes on the piece that the class has let go.
func (b *body) passPiece() {
	l := b.lane
	n := b.piece
	b.piece, b.remaining = 0, b.remaining-n
	p := l.in.bytes()[:n]
	l.backlog.grow(p)
	if b.flow.Class() != nil {
		l.out.send(p)
		b.flow.Left(l.x.now)
	} else {
		l.out.hold(p)
	}
	if l.x.stopped {
		return
	}
	l.wire.Sent(l.class(), shaper.Cost{Bytes: int64(n)})
	b.busy = b.remaining > 0 || l.wire.Readable()
	if l.in.consume(n); b.remaining > 0 {
		return
	}
	l.state = reading
	if l.found.ends {
		b.end()
	}
}

// join moves the flow, with the piece that waits, to another class.
func (b *body) join(class *shaper.Class) {
	l := b.lane
	verdict := b.flow.Move(l.x.now, class)
	if l.state != waiting || verdict == shaper.Waits {
		return
	}
	if b.act(verdict); !l.x.stopped {
		l.x.host.Revisit()
	}
}

// passWhole passes on the message that was found, which nothing limits.
func (b *body) passWhole() {
	l := b.lane
	l.state, l.found.ends = reading, l.found.whole
	l.out.hold(l.found.bytes())
	if !l.x.stopped {
		l.wire.Sent(l.class(), shaper.Cost{Bytes: int64(l.found.size)})
		l.found.consume()
		b.end()
	}
}

// end ends the message, whose last byte was passed on.
func (b *body) end() {
	l := b.lane
	if l.found.ends = false; l.isUp() {
		l.found.open = false
		l.backlog.grown()
		return
	}
	l.x.requests.passed()
	l.x.refusals.writeDue()
	if l.x.retirement.isLast && !l.x.stopped {
		l.state = finishing
		l.x.linger(stats.Aged)
	}
}

package exchange

import (
	"bytes"

	"shaper/frame"
	"shaper/stats"
)

// A connection retires because it is old, or because its host stops. Counted messages of the client
// that come from then on are late: they do not leave any more, and those before them get their turns
// and their answers. What may overtake, such as keep-alives, still passes. Then the connection ends as
// its protocol ends connections:
//
//	http     the next answer has "Connection: close". An old connection without a request waits for
//	         one; if the host stops, it ends
//	smpp     both peers get an unbind. After it only the client's answers pass: the provider would
//	         deliver again what has none
//	others   both connections end, if nothing has moved for a while: who answers whom is not known.
//	         Once only late messages remain, nothing of the client passes behind them; but its
//	         answers do at the end. If the host stops, they go on

// A retirement is the end of an old connection, or of one whose host stops. Before Retire, it has
// not begun and changes nothing.
type retirement struct {
	x      *Exchange
	begun  bool // the connection ends between two messages
	drains bool // the host stops
	quiet  bool // nothing has moved for a while
	isLast bool // the answer that passes is the last one
	ends   bool // of what the client has sent, only its answers still pass
}

// stops reports whether the message that a lane has found has to wait because the connection
// retires.
func (r *retirement) stops(l *lane) bool {
	x := r.x
	return r.begun && l.isUp() && (!x.protocol.isHTTP() || x.link.InFlight() > 0 || l.backlog.n > 0)
}

// holds reports whether the message that a lane has found stays in the input until the connection ends.
// late says that it may not leave. Others stay behind such a message where only quiet ends the connection:
// keep-alives would put that off for ever. Answers of the client pass: the peer that asked has put it off itself.
func (r *retirement) holds(l *lane, late bool) bool {
	behindLate := l.isUp() && l.backlog.late > 0 && !r.x.protocol.asks() && l.found.message.Kind != frame.Response
	return (late || behindLate) && !r.setsAside()
}

// setsAside reports whether a message that has to wait is set aside, so that those behind it may overtake
// it: while others have to leave before the end, or have no answer, keep-alives have to pass.
func (r *retirement) setsAside() bool {
	x := r.x
	return x.protocol.allowsOvertaking() && (x.link.InFlight() > 0 || x.Waiting() > x.up.backlog.late)
}

// closeAfter makes the response that a lane has found the last one, if the connection retires and
// no other request has been sent.
func (r *retirement) closeAfter(l *lane) {
	x, m := r.x, &l.found.message
	others := x.link.InFlight()
	if !l.found.whole {
		others-- // its request is in flight until its end
	}
	if !r.begun || r.isLast || !m.Answers || m.Tunnel || others > 0 || x.Waiting() > 0 || !x.up.isBetween() {
		return
	}
	const field = "Connection: close\r\n"
	line := bytes.IndexByte(l.in.bytes(), '\n') + 1
	l.found.insert(line, field)
	r.isLast = true
}

// isBetween reports whether the lane is between two messages, and has written all before. The
// next one may be there already.
func (l *lane) isBetween() bool {
	switch {
	case len(l.out.held) > 0:
		return false
	case l.state == handling, l.state == reading && l.backlog.late > 0: // what follows does not leave
		return l.isUp()
	}
	return l.state == reading && (l.in.len() == 0 || l.x.protocol.isHTTP())
}

// goOn ends the connection if it retires and is between two messages. In HTTP, the last answer
// ends it, or the stop of its host.
func (r *retirement) goOn() {
	x := r.x
	if !r.begun || x.stopped || x.link.InFlight() > 0 || x.Waiting() > x.up.backlog.late || !x.up.isBetween() || !x.down.isBetween() {
		return
	}
	switch {
	case x.protocol.isSMPP():
		r.unbind()
	case !x.protocol.isHTTP() && r.quiet:
		r.endQuietly()
	case x.protocol.isHTTP() && r.isIdle():
		x.host.Close(stats.Aged)
	}
}

// endQuietly ends a connection of which nobody tells the peers. What the client has sent is read first: its answers
// pass, and bytes that are not read would make the end a reset.
func (r *retirement) endQuietly() {
	x, up := r.x, &r.x.up
	r.endRequests()
	up.state = discarding
	for events := turnEvents; events > 0 && up.discard(); events-- {
	}
	if up.state != discarding {
		return // what it sent cannot be framed, or a write has ended the connection
	}
	if up.out.flush(); !x.stopped {
		x.host.Close(stats.Aged)
	}
}

// endRequests drops the message that was found, and lets only answers of the client pass from now on.
func (r *retirement) endRequests() {
	up := &r.x.up
	if r.ends = true; up.state == handling {
		up.found.drop(r.x.now, up.class(), stats.Reset, up.found.size)
		up.found.consume()
	}
}

// isIdle reports whether a connection of HTTP whose host stops has no request, and no part of one. A
// client that has sent none yet is about to.
func (r *retirement) isIdle() bool {
	x := r.x
	return r.drains && (r.quiet || x.up.found.size > 0) && x.up.isIdle() && x.down.isIdle() && !x.down.found.message.Tunnel
}

// isIdle reports whether nothing of a message is there, and more may come.
func (l *lane) isIdle() bool {
	return l.state == reading && l.in.len() == 0 && l.in.end == open && !l.wire.Readable() && !l.found.open
}

// unbind tells both peers of SMPP that the connection ends.
func (r *retirement) unbind() {
	x := r.x
	r.endRequests()
	x.text = frame.AppendUnbind(x.text[:0], unbindSequence)
	x.down.out.send(x.text)
	if !x.stopped {
		x.up.out.send(x.text)
	}
	if !x.stopped {
		x.down.state = discarding
		x.linger(stats.Aged)
	}
}

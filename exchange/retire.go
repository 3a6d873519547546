package exchange

import (
	"bytes"
	"math"

	"shaper/frame"
	"shaper/policy"
	"shaper/stats"
)

// A connection retires because it is old. Counted messages of the client that come from then on
// wait, so that those before them get their answers. Then the connection ends as its protocol ends
// connections:
//
//	http     the next answer has "Connection: close". A connection without a request waits for one
//	smpp     both peers get an unbind
//	others   both connections end, if nothing has moved for a while: who answers whom is not known

// retires reports whether the message that was found has to wait because the connection retires.
func (l *lane) retires() bool {
	x := l.x
	return x.retiring && l.isUp() && (!x.isHTTP() || x.link.InFlight() > 0 || l.backlog.n > 0)
}

// closeAfter makes the response that was found the last one, if the connection retires and no
// other request has been sent.
func (l *lane) closeAfter() {
	x, m := l.x, &l.found.message
	others := x.link.InFlight()
	if !l.found.whole {
		others-- // its request is in flight until its end
	}
	if !x.retiring || x.isLast || !m.Answers || m.Tunnel || others > 0 || x.Waiting() > 0 || !x.up.isBetween() {
		return
	}
	const field = "Connection: close\r\n"
	line := bytes.IndexByte(l.in.bytes(), '\n') + 1
	l.in.insert(line, field)
	l.found.size += len(field)
	x.isLast = true
}

// isBetween reports whether the lane is between two messages, and has written all before. The
// next one may be there already.
func (l *lane) isBetween() bool {
	switch {
	case len(l.out.held) > 0:
		return false
	case l.state == handling:
		return l.isUp()
	}
	return l.state == reading && (l.in.len() == 0 || l.x.isHTTP())
}

// retire ends the connection if it retires and is between two messages.
func (x *Exchange) retire() {
	if !x.retiring || x.stopped || x.isHTTP() || x.link.InFlight() > 0 || x.Waiting() > 0 || !x.up.isBetween() || !x.down.isBetween() {
		return
	}
	if x.protocol != policy.SMPP {
		if x.quiet {
			x.host.Retire()
		}
		return
	}
	x.refusal = frame.AppendUnbind(x.refusal[:0], math.MaxInt32)
	x.down.out.send(x.refusal)
	if !x.stopped {
		x.up.out.send(x.refusal)
	}
	if !x.stopped {
		x.down.state = discarding
		x.linger(stats.Aged)
	}
}

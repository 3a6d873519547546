package exchange

import (
	"shaper/frame"
	"shaper/stats"
)

// A lane is one direction of an exchange. It reads, finds the next message, and passes it on,
// queues it or refuses it.
type lane struct {
	x         *Exchange
	direction stats.Direction
	wire      Direction
	scan      frame.Scanner

	state state
	in    input
	out   output

	found   found
	backlog backlog // the messages that wait
	body    body
	waste   waste
}

// A state says what a lane does.
type state uint8

const (
	reading    state = iota // it looks for the next message, or the next piece of a body
	peeking                 // a message is found, and its body has to say what it costs
	judging                 // an answer is found, and its body has to say whether its request is sent again
	handling                // a message is found, and waits at the front of the input
	passing                 // body.remaining bytes may be offered to their class
	waiting                 // a piece of them waits in its class
	swallowing              // it throws away what was found; see waste
	discarding              // it throws away all that comes, because a refusal ends the connection
	breaking                // its bytes cannot be framed, and it ends when the client has what it is owed; see breakOff
	finishing               // nothing more comes, and the held bytes are written
	ended                   // the receiver knows that nothing more comes
)

func (l *lane) init(x *Exchange, direction stats.Direction, d Direction, scan frame.Scanner) {
	l.x, l.direction, l.wire, l.scan = x, direction, d, scan
	l.found.in, l.in.run, l.in.wire, l.out.run, l.out.wire = &l.in, &x.run, d, &x.run, d
	l.backlog.lane, l.body.lane, l.waste.lane = l, l, l
}

func (l *lane) isUp() bool { return l.direction == stats.Upstream }

// hasNew reports whether a counted message is found and has entered no class yet.
func (l *lane) hasNew() bool {
	return l.state == peeking || l.state == handling && l.found.message.Kind == frame.Counted
}

// asks reports whether the messages of the lane get answers.
func (l *lane) asks() bool { return l.isUp() && l.x.protocol.asks() }

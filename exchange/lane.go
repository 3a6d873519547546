package exchange

import (
	"shaper/frame"
	"shaper/stats"
)

// lane is one direction of an exchange: it reads, finds the next message, and passes that
// on, queues it, or refuses it.
type lane struct {
	x    *Exchange
	way  stats.Direction
	dir  Direction
	scan frame.Scanner

	state state
	in    input
	out   output

	found   found
	backlog backlog // the messages that wait
	body    body
}

// state is what a lane is at.
type state uint8

const (
	reading    state = iota // it looks for the next message, or the next part of a body
	finding                 // a message is found, and has to wait at the front of the input
	passing                 // bytes are due, and may be offered to their class
	waiting                 // a piece of them waits in its class
	swallowing              // it throws away the body of a refused request
	discarding              // it throws away all that comes: a refusal ends the connection
	finishing               // nothing more comes: what is held is written first
	ended                   // that has been passed on
)

// found is a message that begins at the front of the input, or was there last.
type found struct {
	message  frame.Message
	size     int      // bytes of it that are there
	whole    bool     // that is all
	tag      uint16   // of its class
	follower Follower // nil: nobody
}

func (l *lane) init(x *Exchange, way stats.Direction, d Direction, scan frame.Scanner) {
	l.x, l.way, l.dir, l.scan = x, way, d, scan
	l.out.x, l.out.dir, l.backlog.lane, l.body.lane = x, d, l, l
}

func (l *lane) isUp() bool { return l.way == stats.Upstream }

// asks reports whether messages of the lane get answers.
func (l *lane) asks() bool { return l.isUp() && l.x.asks() }

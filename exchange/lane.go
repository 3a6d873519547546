package exchange

import (
	"io"

	"shaper/frame"
	"shaper/shaper"
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

// class returns the class of the message that was found last, and of the bytes behind it;
// nil for none.
func (l *lane) class() *shaper.Class {
	if l.isUp() {
		return l.x.classes.all[l.found.tag]
	}
	return l.body.flow.Class()
}

// advance does the next thing that can be done; false if there is none before something
// has happened.
func (l *lane) advance() bool {
	switch {
	case l.state == ended || l.out.isStuck() || l.state == waiting || l.backlog.moving != nil:
		return false
	case l.state == discarding:
		return l.discard()
	case l.state == finishing:
		l.finish()
		return false
	case l.state == passing:
		return l.body.passDue()
	case len(l.backlog.ready) > 0 && l.backlog.resume():
		return true
	case l.backlog.behind.n > 0 && l.backlog.followBehind():
		return true
	case l.state == finding:
		return l.handle()
	case l.x.isHTTP() && l.backlog.n > 0:
		return false // what follows would overtake it
	}
	return l.look()
}

// look finds what the input begins with.
func (l *lane) look() bool {
	n, event, err := l.scan.Next(l.in.bytes())
	if err != nil {
		l.fails(err)
		return false
	}
	switch event {
	case frame.More:
		return l.more()
	case frame.Hold:
		return !l.isUp() && l.x.answerDue()
	case frame.Whole, frame.Head:
		return l.find(n, event == frame.Whole)
	}
	return l.body.pass(n, event == frame.End)
}

// more reads on. At the end of the stream it looks what that makes of the rest.
func (l *lane) more() bool {
	switch {
	case l.read():
		return true
	case l.in.end == open || l.backlog.n > 0:
		return false
	case l.in.end == cut: // what there is of a last message is none
		l.finish()
		return false
	}
	event, err := l.scan.End(l.in.bytes())
	switch {
	case err != nil:
		l.fails(err)
		return false
	case event == frame.Whole:
		return l.find(l.in.len(), true)
	case event == frame.End:
		l.finished()
	}
	l.finish()
	return false
}

// read reads what is there; false if there is nothing, or no more.
func (l *lane) read() bool {
	if l.in.end != open || !l.dir.Readable() {
		return false
	}
	n, err := l.dir.Read(l.in.room(l.scan.Need()))
	if l.x.stopped {
		return false
	}
	l.in.filled(n)
	switch err {
	case nil:
	case io.EOF:
		l.in.end = clean
	default:
		l.in.end = cut
	}
	return n > 0
}

// find notes a message of which n bytes are there: all if it is whole, else its head.
func (l *lane) find(n int, whole bool) bool {
	l.state = finding
	f := &l.found
	f.message, f.size, f.whole, f.follower = *l.scan.Message(), n, whole, nil
	if f.message.Kind == frame.Counted {
		l.classify()
		l.follow()
	}
	return l.handle()
}

// follow asks the watcher who follows the message that was found.
func (l *lane) follow() {
	if w := l.x.watcher; w != nil {
		l.found.follower = w.Found(l.x.now, Found{
			Direction: l.way, Message: &l.found.message, Size: l.found.size, Class: l.class(), Asks: l.asks(),
		})
	}
}

// asks reports whether messages of the lane get answers.
func (l *lane) asks() bool { return l.isUp() && l.x.asks() }

// handle does what is to be done with the message that was found; false if that is
// nothing yet.
func (l *lane) handle() bool {
	m := &l.found.message
	switch {
	case m.Kind == frame.Counted:
		return l.count()
	case m.InOrder && l.backlog.n > 0:
		return l.keepPlace()
	case l.x.isHTTP(): // a response, which is bytes
		l.redirect()
		return l.body.pass(l.found.size, l.found.whole)
	}
	l.passWhole()
	return true
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

// finished goes on after a message that was passed on to its end.
func (l *lane) finished() {
	if l.body.ends = false; !l.isUp() {
		l.x.answered()
		l.x.answerDue()
	}
}

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
	moving  *move   // some of them, to another class; nil: none

	flow  shaper.Flow // of bytes that are no message; see body.go
	due   int         // bytes at the front of the input that are to be passed on
	asked int         // of those, the piece that is offered to the class
	ends  bool        // the message ends with the bytes that are due
	busy  bool        // more bytes were there when the last piece left
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
}

func (l *lane) isUp() bool { return l.way == stats.Upstream }

// class returns the class of the message that was found last, and of the bytes behind it;
// nil for none.
func (l *lane) class() *shaper.Class {
	if l.isUp() {
		return l.x.classes.all[l.found.tag]
	}
	return l.flow.Class()
}

// advance does the next thing that can be done; false if there is none before something
// has happened.
func (l *lane) advance() bool {
	switch {
	case l.state == ended || l.isStuck() || l.state == waiting || l.moving != nil:
		return false
	case l.state == discarding:
		return l.discard()
	case l.state == finishing:
		l.finish()
		return false
	case l.state == passing:
		return l.passDue()
	case len(l.backlog.ready) > 0 && l.resume():
		return true
	case l.backlog.behind.n > 0 && l.followBehind():
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
	return l.pass(n, event == frame.End)
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
		return l.pass(l.found.size, l.found.whole)
	}
	l.passWhole()
	return true
}

// passWhole passes on the message that was found, which nothing holds up.
func (l *lane) passWhole() {
	l.state, l.ends = reading, l.found.whole
	l.hold(l.in.bytes()[:l.found.size])
	l.dir.Sent(l.class(), shaper.Cost{Bytes: int64(l.found.size)})
	if !l.x.stopped {
		l.in.consume(l.found.size)
		l.finished()
	}
}

// finished goes on after a message that was passed on to its end.
func (l *lane) finished() {
	if l.ends = false; !l.isUp() {
		l.x.answered()
		l.x.answerDue()
	}
}

// finish passes on that nothing more comes, when all that came is written. Nothing waits.
func (l *lane) finish() {
	l.state = finishing
	if l.flush() && !l.x.stopped {
		l.state = ended
		l.dir.End()
	}
}

// fails ends the lane, since what comes is no message. What waits does not leave.
func (l *lane) fails(err error) {
	l.dir.Break(err)
	l.in.end = cut
	l.dropWaiting(stats.Reset)
	l.finish()
}

// discard throws away what the client sends behind a request whose refusal ends the
// connection: a reset, for bytes that nobody reads, might overtake the refusal.
func (l *lane) discard() bool {
	l.in.drop()
	if l.read() {
		return true
	}
	if l.in.end != open && l.x.down.state == ended {
		l.x.host.Cut(stats.Overflow)
	}
	return false
}

// held returns how many bytes were read and have not been written.
func (l *lane) held() int { return l.in.len() + len(l.out.held) + l.backlog.bytes }

// drop gives up everything, and counts it.
func (l *lane) drop(reason stats.Reason) {
	if l.state == waiting {
		l.flow.Cancel(l.x.now)
	}
	l.dropWaiting(reason)
	if f := l.found.follower; f != nil {
		f.Dropped(l.x.now, reason)
	}
	l.found.follower = nil
	if lost := l.in.len() + len(l.out.held); lost > 0 {
		if class := l.class(); class != nil {
			class.CountDropped(reason, 1, int64(lost))
		}
	}
	l.in.drop()
	l.out.forget()
	l.due, l.state = 0, ended
}

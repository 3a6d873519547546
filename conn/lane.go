package conn

import (
	"time"

	"shaper/buffer"
	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
)

// lane is one direction of an exchange: read, find the next message, and pass it on,
// have it wait, or refuse it.
type lane struct {
	x    *exchange
	dir  *direction // that it carries messages for; bytes of bodies go through its flow
	scan frame.Scanner

	in       *buffer.Buffer // nil: nothing is there
	off, end int            // of in, what was read and is not passed on
	plenty   bool           // the last read has filled it
	out      []byte         // passed on, and not yet written: held for more, or not yet taken by the socket
	block    *buffer.Buffer // where out begins; nil: nowhere, or in memory of its own
	rest     []byte         // what is being written

	found   bool          // a message begins at off, and nothing has been done with it
	message frame.Message // that one
	copy    *shaper.Copy  // of it, for a policy in the shadow
	size    int           // the bytes of it that are there
	whole   bool          // that is all

	backlog backlog // the messages that wait
	moving  *move   // of those, to another class; nil: none

	due     int  // bytes at off that are to be passed on as they are
	asked   int  // of those, which wait for the class
	last    bool // the message ends with them
	swallow bool // a body follows that belongs to a message which was refused
}

func (l *lane) init(x *exchange, d *direction, scan frame.Scanner) {
	l.x, l.dir, l.scan = x, d, scan
	d.carrier = l
}

// from says for people who sends what comes this way.
func (l *lane) from() string {
	if l.isUp() {
		return "client"
	}
	return "upstream"
}

func (l *lane) isUp() bool { return l.dir.way == stats.Upstream }

// class returns the class that what passes is counted in: that of the request to which
// it belongs, or of the way back; nil for none.
func (l *lane) class() *shaper.Class {
	if l.isUp() {
		return l.x.classes[l.x.passing]
	}
	return l.dir.flow.Class()
}

// advance does the next thing that can be done; false where there is none, before
// something has happened.
func (l *lane) advance() bool {
	switch {
	case l.dir.done || l.isStuck() || l.dir.waiting || l.moving != nil:
		return false
	case l.x.closing && l.isUp():
		return l.discard()
	case l.x.closed && !l.isUp():
		l.finish()
		return false
	case l.due > 0:
		return l.passDue()
	case len(l.backlog.ready) > 0 && l.resume():
		return true
	case l.backlog.behind.n > 0 && l.followBehind():
		return true
	case l.found:
		return l.handle()
	case l.x.protocol == policy.HTTP && l.backlog.n > 0:
		return false // what follows would overtake it
	case l.dir.fault != stats.OK:
		return l.breakOff()
	}
	n, event, err := l.scan.Next(l.unread())
	if err != nil {
		return l.fails(err)
	}
	switch event {
	case frame.More:
		return l.more()
	case frame.Hold:
		return !l.isUp() && l.x.answerDue()
	case frame.Whole, frame.Head:
		return l.find(n, event == frame.Whole)
	}
	l.last = event == frame.End
	return l.pass(n)
}

// find notes a message of which so many bytes are there: all, where it is whole, else
// its head.
func (l *lane) find(n int, whole bool) bool {
	l.found, l.message, l.size, l.whole = true, *l.scan.Message(), n, whole
	if !l.isUp() {
		m := &l.message
		l.x.answering, l.x.answers, l.x.throttled, l.x.status = m.Tag, m.Answers, m.Throttle, m.Status
		l.x.number = m.Sequence
	}
	if l.message.Kind == frame.Counted {
		l.copy = l.x.session.copies.offer(l)
	}
	return l.handle()
}

// unread returns what was read and is not passed on.
func (l *lane) unread() []byte {
	if l.in == nil {
		return nil
	}
	return l.in.Bytes[l.off:l.end]
}

// more reads what more there is; at the end of the stream it looks what that makes of
// what is left.
func (l *lane) more() bool {
	switch {
	case l.dir.read():
		return true
	case !l.dir.ended || l.backlog.n > 0:
		return false
	case l.dir.fault != stats.OK:
		return l.breakOff()
	}
	event, err := l.scan.End(l.unread())
	switch {
	case err != nil:
		return l.fails(err)
	case event == frame.Whole:
		return l.find(len(l.unread()), true)
	case event == frame.End:
		l.finished()
		fallthrough
	default:
		l.finish()
	}
	return false
}

// How much room a read has at least; and where the last one found as much as it had
// room for, which is more than is held for more, and so not copied.
const (
	leastRead  = 4 << 10
	plentyRead = 2 * mostHeld
)

// load implements carrier: it reads up to what the buffer has room for.
func (l *lane) load(from sock.End) (n int, drained bool, err error) {
	l.makeRoom()
	if n, err = from.Read(l.in.Bytes[l.end:]); n > 0 {
		l.end += n
		l.plenty = l.end == len(l.in.Bytes)
	}
	l.release()
	return n, !l.plenty, err
}

// makeRoom has room behind what is there for as much as is needed next, in a buffer
// twice as large where it has to be another.
func (l *lane) makeRoom() {
	left := l.end - l.off
	need := max(leastRead, l.scan.Need(), left+1)
	if l.plenty {
		need = max(need, plentyRead)
	}
	switch {
	case l.in == nil:
		l.in = buffer.Get(need)
	case len(l.in.Bytes) < need:
		larger := buffer.Get(min(2*need, buffer.Max))
		copy(larger.Bytes, l.unread())
		l.in.Put()
		l.in = larger
	default:
		copy(l.in.Bytes, l.unread())
	}
	l.off, l.end = 0, left
}

// consume goes on behind n bytes.
func (l *lane) consume(n int) {
	l.off += n
	l.release()
}

// release gives the buffer back when nothing is in it.
func (l *lane) release() {
	if l.in != nil && l.off == l.end {
		l.in.Put()
		l.in, l.off, l.end = nil, 0, 0
	}
}

// handle does what is to be done with the message that was found; false where that is
// nothing yet.
func (l *lane) handle() bool {
	m := &l.message
	switch {
	case m.Kind == frame.Counted:
		return l.count()
	case m.InOrder && l.backlog.n > 0:
		return l.keepPlace()
	}
	l.found, l.last = false, l.whole
	if l.x.protocol == policy.HTTP { // a response, which is bytes
		l.redirect()
		return l.pass(l.size)
	}
	l.passWhole()
	return true
}

// passWhole passes on the message that was found, which nothing holds up.
func (l *lane) passWhole() {
	l.hold(l.unread()[:l.size])
	l.dir.count(l.class(), shaper.Cost{Bytes: int64(l.size)})
	l.consume(l.size)
	l.finished()
}

// finished looks what is to be done when a message has been passed on to its end.
func (l *lane) finished() {
	if l.last = false; !l.isUp() {
		l.x.answered()
		l.x.answerDue()
	}
}

// pass passes n bytes on, as far as classes let them that count bytes.
func (l *lane) pass(n int) bool {
	if l.swallow {
		l.consume(n)
		if l.last {
			l.swallow, l.last = false, false
		}
		return true
	}
	l.due = n
	return l.passDue()
}

// passDue passes on what may be, and has the rest wait for its class piece by piece.
func (l *lane) passDue() bool {
	for l.due > 0 && !l.dir.waiting {
		if l.asked == 0 { // else it has left, when a reload moved it
			l.ask()
		}
		if l.x.session.stage != relaying {
			return false
		}
		if !l.dir.waiting {
			l.passAsked()
		}
	}
	return !l.dir.waiting
}

// ask has the next piece of what is due enter its class.
func (l *lane) ask() {
	l.asked = l.due
	if class := l.dir.flow.Class(); class != nil {
		l.asked = min(l.due, int(class.Piece()))
	}
	l.dir.ask(time.Now(), shaper.Cost{Bytes: int64(l.asked)})
}

// passAsked passes on what its class has let go.
func (l *lane) passAsked() {
	n := l.asked
	l.asked, l.due = 0, l.due-n
	if l.dir.flow.Class() != nil {
		l.send(l.unread()[:n])
		l.dir.flow.Left(time.Now())
	} else {
		l.hold(l.unread()[:n])
	}
	l.dir.count(l.class(), shaper.Cost{Bytes: int64(n)})
	l.dir.busy = l.due > 0 || l.dir.src.Readable
	if l.consume(n); l.due == 0 && l.last {
		l.finished()
	}
}

// granted implements carrier: a piece of a body may go.
func (l *lane) granted() {
	if l.passAsked(); l.x.session.stage == relaying {
		l.x.goOn(1)
	}
}

// refused implements carrier.
func (l *lane) refused() int {
	n := l.asked
	l.asked, l.due = 0, l.due-n
	return n
}

// send writes, in one piece if the socket takes that, behind what it has not taken.
func (l *lane) send(p []byte) {
	if len(l.out) > 0 {
		l.out = append(l.out, p...)
		l.flush()
		return
	}
	l.rest = p
	if l.dir.write(l); l.x.session.stage == relaying {
		l.out = append(l.out, l.rest...)
	}
	l.rest = nil
}

// unload implements unloader.
func (l *lane) unload(to sock.End) (n int, err error) {
	n, err = to.Write(l.rest)
	l.rest = l.rest[n:]
	return n, err
}

// left implements unloader.
func (l *lane) left() int { return len(l.rest) }

// mostHeld is how much is held for more.
const mostHeld = 16 << 10

// hold is send for what no class counts, and which may leave together with what
// follows it in the same turn: a write for each would take longer than all else.
func (l *lane) hold(p []byte) {
	if len(l.out)+len(p) > mostHeld {
		l.send(p)
		return
	}
	if l.out == nil {
		l.block = buffer.Get(mostHeld)
		l.out = l.block.Bytes[:0]
	}
	l.out = append(l.out, p...)
}

// flush writes what is held, and what the socket had no room for; false where it still
// has not.
func (l *lane) flush() bool {
	if len(l.out) == 0 {
		return true
	}
	l.rest = l.out
	all := l.dir.write(l)
	if l.x.session.stage != relaying {
		return false
	}
	l.out, l.rest = l.out[:copy(l.out, l.rest)], nil
	if all {
		l.forget()
	}
	return all
}

// forget gives up what is to be written.
func (l *lane) forget() {
	if l.block != nil {
		l.block.Put()
	}
	l.out, l.block, l.rest = nil, nil, nil
}

// isStuck reports whether the socket has no room for what is to be written.
func (l *lane) isStuck() bool {
	return len(l.out) > 0 && !l.dir.dst.Writable || l.isFlooded()
}

// isFlooded reports whether more is to be written than is held for the rest of a turn,
// since the other end does not read.
func (l *lane) isFlooded() bool { return len(l.out) > mostHeld && !l.flush() }

// finish passes on that nothing more comes, when all that did is written.
func (l *lane) finish() {
	if l.flush() && l.x.session.stage == relaying {
		l.dir.end()
	}
}

// breakOff ends the session by a fault, behind the messages that came before. What there
// is of a last one is none.
func (l *lane) breakOff() bool {
	if l.backlog.n == 0 {
		l.finish()
	}
	return false
}

// fails ends the session, since what comes is no message. What waits does not leave.
func (l *lane) fails(err error) bool {
	l.x.unframed(l, err)
	l.dir.ended, l.dir.fault = true, stats.Unframed
	l.dropWaiting(stats.Reset)
	return l.breakOff()
}

// discard throws away what the client sends behind a request that ends the
// connection: a reset, for bytes that nobody reads, might overtake the refusal.
func (l *lane) discard() bool {
	l.off = l.end
	l.release()
	if l.dir.read() {
		return true
	}
	if l.dir.ended && l.x.down.dir.done {
		l.x.down.dir.cutOff(stats.Overflow)
	}
	return false
}

// held implements carrier.
func (l *lane) held() int {
	return l.end - l.off + len(l.out) + l.backlog.bytes
}

// drop implements carrier.
func (l *lane) drop(reason stats.Reason) {
	l.dropWaiting(reason)
	if lost := l.end - l.off + len(l.out); lost > 0 {
		if class := l.class(); class != nil {
			class.CountDropped(reason, 1, int64(lost))
		}
	}
	if l.in != nil {
		l.in.Put()
		l.in, l.off, l.end = nil, 0, 0
	}
	l.forget()
	l.due = 0
}

package conn

import (
	"time"

	"golang.org/x/sys/unix"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// lane is one direction of an exchange: read, find the next message, and pass it on,
// have it wait, or refuse it.
type lane struct {
	x    *exchange
	half *half // whose sockets it uses, and whose flow bytes of bodies go through
	scan frame.Scanner

	in       *buffer // nil: nothing is there
	off, end int     // of in, what was read and is not passed on
	plenty   bool    // the last read has filled it
	out      []byte  // passed on, and not yet written: held for more, or not yet taken by the socket
	held     *buffer // where out begins; nil: nowhere, or in memory of its own
	ended    bool    // nothing more comes

	found   bool          // a message begins at off, and nothing has been done with it
	message frame.Message // that one
	copy    *shaper.Copy  // of it, for a policy in the shadow
	size    int           // the bytes of it that are there
	whole   bool          // that is all

	waiting []*waitingMessage // for their classes, in the order in which they came
	full    bool              // the one that was found has no room, and its client is made to wait

	due     int  // bytes at off that are to be passed on as they are
	asked   int  // of those, which wait for the class
	last    bool // the message ends with them
	swallow bool // a body follows that belongs to a message which was refused
}

func (l *lane) init(x *exchange, h *half, scan frame.Scanner) { l.x, l.half, l.scan = x, h, scan }

// from says for people who sends what comes this way.
func (l *lane) from() string {
	if l.isUp() {
		return "client"
	}
	return "upstream"
}

func (l *lane) isUp() bool { return l.half.way == stats.Upstream }

// class returns the class that what passes is counted in: that of the request to which
// it belongs, or of the way back; nil for none.
func (l *lane) class() *shaper.Class {
	if l.isUp() {
		return l.x.classes[l.x.passing]
	}
	return l.half.flow.Class()
}

// advance does the next thing that can be done; false where there is none, before
// something has happened.
func (l *lane) advance() bool {
	switch {
	case l.half.done || l.isStuck() || l.half.waiting || l.full:
		return false
	case l.x.closing && l.isUp():
		return l.discard()
	case l.x.closed && !l.isUp():
		l.finish()
		return false
	case l.due > 0:
		return l.passDue()
	case l.found:
		return l.handle()
	case l.x.protocol == policy.HTTP && len(l.waiting) > 0:
		return false // what follows would overtake it
	}
	n, event, err := l.scan.Next(l.unread())
	if err != nil {
		l.x.failed(l, err)
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
	return l.in.bytes[l.off:l.end]
}

// more reads what more there is; at the end of the stream it looks what that makes of
// what is left.
func (l *lane) more() bool {
	if l.read() {
		return true
	}
	if !l.ended || len(l.waiting) > 0 {
		return false
	}
	event, err := l.scan.End(l.unread())
	switch {
	case err != nil:
		l.x.failed(l, err)
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

// read reads what is there, up to what the buffer has room for; false where there is
// nothing.
func (l *lane) read() bool {
	src := l.half.src
	if !src.readable || l.ended {
		return false
	}
	l.half.sizeReceiveBuffer()
	l.makeRoom()
	n, err := readNow(src.fd, l.in.bytes[l.end:])
	for err == unix.EINTR {
		n, err = readNow(src.fd, l.in.bytes[l.end:])
	}
	switch {
	case err == unix.EAGAIN:
		src.readable = false
	case err != nil:
		l.x.finish(resultOf(err))
	case n == 0:
		l.ended = true
	default:
		l.end += n
		l.plenty = l.end == len(l.in.bytes)
		if !l.plenty && !src.ends && !src.urgent {
			src.readable = false // it has been emptied
		}
		l.half.active = true
		return true
	}
	l.release()
	return false
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
		l.in = getBuffer(need)
	case len(l.in.bytes) < need:
		larger := getBuffer(min(2*need, maxBuffer))
		copy(larger.bytes, l.unread())
		l.in.put()
		l.in = larger
	default:
		copy(l.in.bytes, l.unread())
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
		l.in.put()
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
	case m.InOrder && len(l.waiting) > 0:
		return false // until those have left
	}
	l.found, l.last = false, l.whole
	if l.x.protocol == policy.HTTP { // a response, which is bytes
		return l.pass(l.size)
	}
	l.passWhole()
	return true
}

// passWhole passes on the message that was found, which nothing holds up.
func (l *lane) passWhole() {
	l.hold(l.unread()[:l.size])
	l.sent(l.class(), shaper.Cost{Bytes: int64(l.size)})
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
	for l.due > 0 && !l.half.waiting {
		if l.asked == 0 { // else it has left, when a reload moved it
			l.ask()
		}
		if l.x.session.stage != relaying {
			return false
		}
		if !l.half.waiting {
			l.passAsked()
		}
	}
	return !l.half.waiting
}

// ask has the next piece of what is due enter its class.
func (l *lane) ask() {
	l.asked = l.due
	if class := l.half.flow.Class(); class != nil {
		l.asked = min(l.due, int(class.Piece()))
	}
	l.half.ask(time.Now(), shaper.Cost{Bytes: int64(l.asked)})
}

// passAsked passes on what its class has let go.
func (l *lane) passAsked() {
	n := l.asked
	l.asked, l.due = 0, l.due-n
	if l.half.flow.Class() != nil {
		l.send(l.unread()[:n])
		l.half.flow.Left(time.Now())
	} else {
		l.hold(l.unread()[:n])
	}
	l.sent(l.class(), shaper.Cost{Bytes: int64(n)})
	l.half.busy = l.due > 0 || l.half.src.readable
	if l.consume(n); l.due == 0 && l.last {
		l.finished()
	}
}

// sent counts what has left a class.
func (l *lane) sent(class *shaper.Class, cost shaper.Cost) {
	if class != nil {
		volume := &class.Stats.Sent[l.half.way]
		volume.Bytes.Add(uint64(cost.Bytes))
		volume.Messages.Add(uint64(cost.Messages))
	}
}

// send writes, in one piece if the socket takes that, behind what it has not taken.
func (l *lane) send(p []byte) {
	if len(l.out) > 0 {
		l.out = append(l.out, p...)
		l.flush()
	} else if n := l.write(p); l.x.session.stage == relaying {
		l.out = append(l.out, p[n:]...)
	}
}

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
		l.held = getBuffer(mostHeld)
		l.out = l.held.bytes[:0]
	}
	l.out = append(l.out, p...)
}

// flush writes what is held, and what the socket had no room for; false where it still
// has not.
func (l *lane) flush() bool {
	if len(l.out) == 0 {
		return true
	}
	n := l.write(l.out)
	if l.x.session.stage != relaying {
		return false
	}
	if l.out = l.out[:copy(l.out, l.out[n:])]; len(l.out) > 0 {
		return false
	}
	l.forget()
	return true
}

// forget gives up what is to be written.
func (l *lane) forget() {
	if l.held != nil {
		l.held.put()
	}
	l.out, l.held = nil, nil
}

// isStuck reports whether the socket has no room for what is to be written.
func (l *lane) isStuck() bool {
	return len(l.out) > 0 && !l.half.dst.writable || l.isFlooded()
}

// isFlooded reports whether more is to be written than is held for the rest of a turn,
// since the other end does not read.
func (l *lane) isFlooded() bool { return len(l.out) > mostHeld && !l.flush() }

// write writes what the socket takes.
func (l *lane) write(p []byte) (n int) {
	dst := l.half.dst
	for n < len(p) && dst.writable && l.x.session.stage == relaying {
		k, err := sendNow(dst.fd, p[n:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			dst.writable = false
		case err != nil:
			l.x.session.finish(resultOf(err))
		default:
			l.half.moved += uint64(k)
			l.half.active = true
			n += k
		}
	}
	return n
}

// finish passes on that nothing more comes, when all that did is written.
func (l *lane) finish() {
	if l.flush() && l.x.session.stage == relaying {
		l.half.finish()
	}
}

// discard throws away what the client sends behind a request that ends the
// connection: a reset, for bytes that nobody reads, might overtake the refusal.
func (l *lane) discard() bool {
	l.off = l.end
	l.release()
	if !l.read() && l.ended {
		l.x.finish(stats.Overflow)
		return false
	}
	return l.in != nil
}

// backlog returns how many bytes are read and not yet written.
func (l *lane) backlog() int {
	n := l.end - l.off + len(l.out)
	for _, m := range l.waiting {
		n += m.n
	}
	return n
}

// quit drops what has not left.
func (l *lane) quit(reason stats.Reason) {
	now := time.Now()
	for _, m := range l.waiting {
		m.class.Stats.Dropped[reason].Add(int64(m.n))
		if m.class.Cancel(now, &m.item) {
			m.release()
		} // else it is about to be told to leave, and will not
	}
	l.waiting = nil
	if lost := l.due + len(l.out); lost > 0 {
		if class := l.class(); class != nil {
			class.Stats.Dropped[reason].Add(int64(lost))
		}
	}
	if l.in != nil {
		l.in.put()
		l.in, l.off, l.end = nil, 0, 0
	}
	l.forget()
	l.due = 0
}

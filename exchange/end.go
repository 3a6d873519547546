package exchange

import (
	"math"

	"shaper/frame"
	"shaper/shaper"
	"shaper/stats"
)

// finish writes what is held, and then tells the receiver that nothing more comes. No message
// may wait.
func (l *lane) finish() {
	l.state = finishing
	x := l.x
	if !l.out.flush() || x.stopped {
		return
	}
	l.state = ended
	if l.wire.End(); !l.isUp() && x.told != stats.OK && !x.stopped {
		x.leave()
	}
}

// fail says that the bytes of the lane cannot be framed. Messages that wait are dropped. The
// caller ends the lane.
func (l *lane) fail(err error) {
	l.wire.Break(err)
	l.in.end = cut
	l.backlog.drop(stats.Reset)
	l.backlog.forgetAll()
}

// getsNoAnswers reports whether the requests that a lane has not sent get no answers any more.
func (x *Exchange) getsNoAnswers(l *lane) bool {
	return l.isUp() && (x.protocol.isHTTP() && x.down.state >= finishing || x.down.in.end == cut || l.wire.Shut() && x.down.state != swallowing)
}

// cease drops the requests that have not left, and from now on throws away what the client sends: no
// request gets an answer any more. Those that left would take the turns of others for nothing.
func (l *lane) cease() {
	if l.state == waiting {
		l.body.flow.Cancel(l.x.now)
	}
	l.backlog.drop(stats.Reset)
	l.found.drop(l.x.now, l.class(), stats.Reset, l.in.len())
	l.in.drop()
	l.state = discarding
}

// discard reads and throws away what a peer sends after the client was told that the connection
// ends. Closing with unread bytes would send a reset, which might overtake the refusal. If the client does not read
// what it gets, it has to wait.
func (l *lane) discard() bool {
	x := l.x
	if x.told != stats.OK && x.down.state == finishing && x.down.out.isStuck() {
		return false
	}
	passes := l.isUp() && x.retirement.ends && x.down.in.end == open
	switch {
	case !passes:
		l.in.drop()
	case !x.retirement.passAnswers():
		return false
	}
	read := l.in.read(l.scan.Need())
	switch {
	case !l.isUp() || x.stopped:
	case x.told != stats.OK:
		if x.down.state == ended && read || l.in.end != open {
			x.leave()
		}
	case x.down.state == ended && l.in.end != open:
		l.finish()
	}
	return read
}

// leave ends the connection, of which the client was told, if the client has ended it and all is written. Otherwise
// the client has a while to do so.
func (x *Exchange) leave() {
	switch {
	case x.up.in.end == open:
		x.host.Linger(x.told)
	case len(x.down.out.held) == 0 && x.up.out.flush():
		x.host.Close(x.told)
	}
}

// unbindSequence is the number of the unbind that ends an old connection of SMPP.
const unbindSequence = math.MaxInt32

// passAnswers passes the client's answers among what was read since endRequests, and throws away the rest.
// The answer to the unbind is not for the provider, which gives its own. It returns false if the lane does not
// go on: behind bytes that cannot be framed, nobody knows where an answer begins.
func (r *retirement) passAnswers() bool {
	l := &r.x.up
	for {
		n, event, err := l.scan.Next(l.in.bytes())
		switch {
		case err != nil:
			l.fail(err)
			l.finish()
			return false
		case event != frame.Whole:
			return true
		}
		switch m := l.scan.Message(); {
		case m.Kind == frame.Counted:
			l.found.message = *m
			l.classify()
			l.found.drop(l.x.now, l.class(), stats.Reset, n)
		case m.Kind == frame.Response && m.Sequence != unbindSequence:
			l.out.hold(l.in.bytes()[:n])
			l.wire.Sent(l.class(), shaper.Cost{Bytes: int64(n)})
		}
		if l.x.stopped {
			return false
		}
		l.in.consume(n)
	}
}

// held returns how many bytes were read and are not written.
func (l *lane) held() int { return l.in.len() + len(l.out.held) + l.backlog.bytes }

// drop drops all that the lane holds, and counts it.
func (l *lane) drop(reason stats.Reason) {
	if l.state == waiting {
		l.body.flow.Cancel(l.x.now)
	}
	if l.state == judging {
		l.x.requests.accounts.book.answer.unreserve(l)
	}
	l.backlog.drop(reason)
	l.backlog.forgetAll()
	l.found.drop(l.x.now, l.class(), reason, l.in.len()+len(l.out.held))
	l.in.drop()
	l.out.forget()
	l.body.remaining, l.state = 0, ended
}

// linger ends the connection soon, since the client has been told of the end. The connection ends once all is
// written that the client gets. What the client still sends is thrown away, unless it cannot be framed: then the
// connection ends at once.
func (x *Exchange) linger(result stats.Result) {
	if x.up.state == breaking {
		return
	}
	if x.up.state, x.told = discarding, result; x.down.state != finishing {
		x.leave()
	}
}

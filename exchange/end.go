package exchange

import "shaper/stats"

// finish passes on that nothing more comes, when all that came is written. Nothing waits.
func (l *lane) finish() {
	l.state = finishing
	if l.out.flush() && !l.x.stopped {
		l.state = ended
		l.dir.End()
	}
}

// fails ends the lane, since what comes is no message. What waits does not leave.
func (l *lane) fails(err error) {
	l.dir.Break(err)
	l.in.end = cut
	l.backlog.drop(stats.Reset)
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
		l.body.flow.Cancel(l.x.now)
	}
	l.backlog.drop(reason)
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
	l.body.due, l.state = 0, ended
}

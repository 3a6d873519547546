package exchange

import "shaper/frame"

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

package exchange

import "shaper/frame"

// advance does the next thing that the lane can do. It returns false if the lane can do
// nothing until something happens.
func (l *lane) advance() bool {
	switch {
	case l.state == ended || l.state == breaking || l.out.isStuck() || l.state == waiting || l.backlog.moving != nil:
		return false
	case l.state == discarding:
		return l.discard()
	case l.state == finishing:
		l.finish()
		return false
	case l.state == passing:
		return l.body.passRemaining()
	case len(l.backlog.ready) > 0 && l.backlog.resume():
		return true
	case l.backlog.behind.n > 0 && l.backlog.followBehind():
		return true
	case l.state == peeking:
		return l.found.peek.goOn() && l.enterFound()
	case l.state == judging:
		return l.x.requests.accounts.book.answer.judge(l) && l.handle()
	case l.state == handling:
		return l.handle()
	case l.x.protocol.isHTTP() && l.backlog.pending() > 0:
		return false // the next message would overtake it
	}
	return l.look()
}

// look finds what the input begins with.
func (l *lane) look() bool {
	n, event, err := l.scan.Next(l.in.bytes())
	if err != nil {
		l.breakOff(err)
		return false
	}
	switch event {
	case frame.More:
		return l.readMore()
	case frame.Hold:
		return !l.isUp() && l.x.refusals.writeDue()
	case frame.Whole, frame.Head:
		return l.find(n, event == frame.Whole)
	case frame.Blank:
		l.in.consume(n)
		return true
	}
	if !l.isUp() {
		l.x.requests.accounts.hear(l.in.bytes()[:n])
	}
	goesOn := l.body.pass(n, event == frame.End)
	if l.waste.isEndless() {
		return l.waste.stop()
	}
	return goesOn
}

// readMore reads more. At the end of the stream, it decides what the remaining bytes are.
func (l *lane) readMore() bool {
	switch {
	case l.in.read(l.scan.Need()):
		return true
	case l.in.end == open || l.backlog.pending() > 0:
		return false
	case l.in.end == cut: // the beginning of a message is no message
		l.over()
		return false
	}
	event, err := l.scan.End(l.in.bytes())
	switch {
	case err != nil:
		l.breakOff(err)
		return false
	case event == frame.Whole:
		return l.find(l.in.len(), true)
	case event == frame.End:
		l.body.end()
	}
	l.over()
	return false
}

// find takes note of a message that the input begins with. n bytes of the message are there:
// the whole message, or else its head.
func (l *lane) find(n int, whole bool) bool {
	l.state = handling
	f := &l.found
	f.message, f.size, f.whole, f.tokens, f.said, f.follower, f.heeded, f.lost = *l.scan.Message(), n, whole, 0, said{}, nil, false, false
	f.open = !whole && (l.isUp() || f.message.Answers)
	if f.message.Kind == frame.Counted {
		l.classify()
		if f.peek = newPeek(l); f.peek != nil {
			l.state = peeking
			return f.peek.goOn() && l.enterFound()
		}
		return l.enterFound()
	}
	if f.message.Answers {
		l.x.requests.accounts.begin(l)
		if l.x.requests.accounts.holdsBack(l) && !l.x.requests.accounts.book.answer.judge(l) {
			return false
		}
	}
	return l.handle()
}

// enterFound handles the counted message that was found, as soon as its cost can be known.
func (l *lane) enterFound() bool {
	l.found.charge(l.x.protocol, l.class(), l.scan.Message().Cost)
	l.follow()
	return l.handle()
}

// follow asks the watcher who follows the message that was found.
func (l *lane) follow() {
	if w := l.x.requests.watcher; w != nil {
		l.found.follower = w.Found(l.x.now, Found{
			Direction: l.direction, Message: &l.found.message, Size: l.found.size, Class: l.class(), Cost: l.found.cost(), Asks: l.asks(),
		})
	}
}

// handle passes on, queues or refuses the message that was found. It returns false if it can
// do nothing yet.
func (l *lane) handle() bool {
	m := &l.found.message
	late := m.Kind == frame.Counted && l.x.retirement.stops(l)
	switch {
	case m.Kind == frame.Counted && l.x.getsNoAnswers(l):
		l.cease()
		return true
	case l.x.retirement.holds(l, late):
		return false
	case m.Kind == frame.Counted:
		return l.handleCounted(late)
	case m.InOrder && l.backlog.pending() > 0:
		return l.keepPlace()
	case m.Answers && l.x.up.backlog.settle(m):
		l.waste.all()
		return true
	case l.x.protocol.isHTTP(): // a response passes as bytes
		if o := l.x.origin; o != nil {
			l.found.redirect(o)
		}
		l.x.retirement.closeAfter(l)
		return l.body.pass(l.found.size, l.found.whole)
	}
	l.body.passWhole()
	return true
}

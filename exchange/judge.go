package exchange

import (
	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
)

// If an answer may say only in its body that the provider has refused the request as too fast, it
// is held back in the input until its body has been read. Then the whole answer passes on
// unchanged, or the request is sent again and the answer is thrown away. So it is with a 429 too,
// because its body may say which class it concerns. An answer is held back only if its request may be
// sent again, and if it shows what it says in time: a body without an end, a body that is too long,
// and a stream of events pass on at once, whatever they say.

// mostHeldBack is how many bytes of a body are held back.
const mostHeldBack = mostPeeked

// holdsBack reports whether the answer that was found is held back until its body has been read.
func (a *accounts) holdsBack(l *lane) bool {
	book, m := a.book, &l.found.message
	if book == nil || m.Ends || l.x.up.backlog.of(m.Tag).sent.n == 0 {
		return false
	}
	one := &book.answer
	return one.content != nil && !one.events && one.tooFast == nil && one.hasSignalInBody() && l.scan.Opaque() <= mostHeldBack
}

// hasSignalInBody reports whether the body may say "too fast".
func (a *answer) hasSignalInBody() (has bool) {
	a.eachSignal(func(_ *shaper.Class, s *policy.Signal) { has = has || s.JSON != "" })
	return has
}

// judge reads the body of the answer that is held back. It returns false if more has to come. What
// is cut, is broken, is too long or finds no memory is read again as it passes on.
func (a *answer) judge(l *lane) bool {
	if l.state != judging {
		l.state, a.heldFrom = judging, l.x.now
	}
	for {
		body := l.found.body()
		body = body[:min(len(body), mostHeldBack)]
		ended := a.follow(body)
		switch {
		case ended:
			a.passOn(l)
			a.hear(body)
			a.end()
			return true
		case a.content.IsBroken(), len(body) == mostHeldBack:
		case l.in.read(l.scan.Need()):
			continue
		case l.in.end == open && (l.x.stopped || a.reserve(l)):
			return false
		}
		a.passOn(l)
		return true
	}
}

// follow looks for the end of a body that begins with these bytes, and reports whether the end is
// there. It keeps none of the bytes: they stay in the input.
func (a *answer) follow(body []byte) (ended bool) {
	for n := 1; n > 0 && !ended; a.followed += n {
		n, _, ended = a.content.Next(body[a.followed:])
	}
	return ended
}

// hurry waits no longer for the rest of an answer that has been held back for too long: it passes on.
func (a *accounts) hurry(l *lane) {
	if l.state != judging {
		return
	}
	if one := &a.book.answer; l.x.now.Sub(one.heldFrom) > answerPatience {
		one.passOn(l)
		l.x.host.Revisit()
	}
}

// passOn ends the wait for the body, which is read from its beginning as the answer passes on.
func (a *answer) passOn(l *lane) {
	a.unreserve(l)
	a.content = frame.NewContent(l.scan)
	l.state = handling
}

package exchange

import (
	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
)

// If an answer may say only in its body that the provider has refused the request as too fast, it
// is held back in the input until its body has been read. Then the whole answer passes on
// unchanged, or the request is sent again and the answer is thrown away. That is so only if the
// request may be sent again, and an answer shows what it says in time: a body without an end, a
// body that is too long, and a stream of events pass on at once, whatever they say.

// mostHeldBack is how many bytes of a body are held back.
const mostHeldBack = mostPeeked

// holdsBack reports whether the answer that was found is held back until its body has been read.
func (a *accounts) holdsBack(l *lane) bool {
	book, m := a.book, &l.found.message
	if book == nil || m.Ends || m.Throttle.Refused || l.x.up.backlog.of(m.Tag).sent.n == 0 {
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
	l.state = judging
	for {
		body := l.in.bytes()[l.found.size:]
		body = body[:min(len(body), mostHeldBack)]
		n, ended := a.hear(body[a.heard:])
		a.heard += n
		switch {
		case ended:
			a.end()
		case a.content.IsBroken(), len(body) == mostHeldBack:
			a.beginAgain(l)
		case l.read():
			continue
		case l.in.end == open && (l.x.stopped || a.reserve(l, len(body))):
			return false
		default:
			a.beginAgain(l)
		}
		break
	}
	a.unreserve(l)
	l.state = handling
	return true
}

// beginAgain forgets what was read of the body.
func (a *answer) beginAgain(l *lane) { a.kept, a.content = a.kept[:0], frame.NewContent(l.scan) }

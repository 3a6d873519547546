package exchange

import (
	"time"

	"shaper/frame"
)

// requests are the messages that the provider has and has to answer. Each uses the tag of its class once, until its
// answer has been passed on or thrown away, or until nobody expects the answer any more. Its class is told once that the
// provider has answered, or that it never does.
type requests struct {
	run      *run
	protocol protocol
	link     frame.Link // knows which are in flight
	classes  *classes
	watcher  Watcher // nil: nobody
	accounts accounts
	answer   *found // what the other lane has found last: an answer, if its message says so
}

// send tells the link that a message leaves. It reports whether the message gets an answer. If
// so, the message uses its tag until then.
func (r *requests) send(m *message) (asks bool) {
	before := r.link.InFlight()
	r.link.Sent(m.frame(), r.run.now)
	if asks = r.link.InFlight() > before; asks {
		m.at = r.run.now // as the link has it, so that Tend gives up both together
		r.classes.use(m.tag)
	}
	return asks
}

// unanswered returns how many requests have no answer yet, and not even the head of one.
func (r *requests) unanswered() int {
	n := r.link.InFlight()
	if r.answer.open && !r.answer.ends {
		n-- // the link counts it until the last byte of its answer is found
	}
	return n
}

// tellExpired tells the watcher that no answers are expected any more to what was sent before a time.
func (r *requests) tellExpired(before time.Time) {
	if r.watcher != nil {
		r.watcher.Expired(r.run.now, before)
	}
}

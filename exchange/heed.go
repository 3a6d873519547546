package exchange

import (
	"fmt"
	"strconv"

	"shaper/frame"
	"shaper/stats"
)

// congested is the highest value of frame.Throttle.Congestion.
const congested = 101

// passed tells the class of a request that its answer has been passed on, and what the
// answer says about the rate. It does nothing if the last message of the provider answers no
// request.
func (r *requests) passed() {
	r.answer.open = false
	m := &r.answer.message
	if !m.Answers {
		return
	}
	m.Answers = false
	if r.watcher != nil {
		r.watcher.Answered(r.run.now, m.Sequence)
	}
	if late := r.accounts.end(r.run.now); late && !m.Throttle.Refused {
		r.notKept(m)
	}
	r.heed(m)
	r.classes.disuse(r.run.now, m.Tag)
}

// notKept counts that an answer refuses a request that is not sent again, although its class
// has retry.
func (r *requests) notKept(f *frame.Message) {
	if class := r.classes.all[f.Tag].class; class.Messages().Retry().Max > 0 {
		class.Tally().Retried(stats.RetryNotKept, r.refusalOf(f))
	}
}

// endUse ends the use of a tag by the request that an answer is for, once.
func (r *requests) endUse(m *frame.Message) {
	if m.Answers {
		m.Answers = false
		r.classes.disuse(r.run.now, m.Tag)
	}
}

// giveUp tells the class of a tag that one of its requests gets no answer any more.
func (r *requests) giveUp(tag uint16) {
	r.classes.all[tag].class.Provider().Answered(r.run.now, false)
	r.classes.disuse(r.run.now, tag)
}

// drop gives up all requests in flight, since the provider has ended or the exchange quits.
func (r *requests) drop() { r.link.Drop(r.giveUpAtEnd) }

// giveUpAtEnd is giveUp when no more answers come. It is called for the oldest request first. If a
// part of the answer to that request has come, the class may know already what the answer says.
func (r *requests) giveUpAtEnd(tag uint16) {
	f := r.answer
	known := f.open && f.heeded
	if f.open = false; known {
		r.endUse(&f.message)
	} else {
		r.giveUp(tag)
	}
}

// expectNoAnswers gives up all requests in flight, since the provider has ended: none of them gets an answer any
// more. So what waits for their answers goes on, in this connection and in others of their classes.
func (x *Exchange) expectNoAnswers() {
	x.requests.drop()
	x.up.backlog.forgetAll()
	if !x.protocol.isHTTP() {
		x.requests.tellExpired(x.now.Add(1))
	}
}

// heed tells the class of a request what its answer m says about the rate. m is the answer that was found last. A second
// call for the same answer does nothing.
func (r *requests) heed(m *frame.Message) {
	if r.answer.heeded {
		return
	}
	r.answer.heeded = true
	class := r.classes.all[m.Tag].class
	tooFast := m.Throttle.Limited || m.Throttle.Congestion == congested
	if r.accounts.tell(r.run.now) {
		tooFast = true
	} else if tooFast {
		class.Provider().Throttled(r.run.now, m.Throttle.Pause(r.run.now), signalOf(r.protocol, m))
		r.accounts.silence()
	}
	class.Provider().Answered(r.run.now, !tooFast)
}

// refusalOf names the signal by which an answer refuses its request: the code of the protocol, or
// else what the policy looks for in the answer.
func (r *requests) refusalOf(f *frame.Message) string {
	if f.Throttle.Refused {
		return signalOf(r.protocol, f)
	}
	return stats.SignalInAnswer
}

// signalOf names what the provider said, for people.
func signalOf(p protocol, m *frame.Message) string {
	switch {
	case !m.Throttle.Limited:
		return "congestion"
	case p.isSMPP():
		return fmt.Sprintf("%#x", m.Status)
	}
	return strconv.Itoa(m.Status)
}

package exchange

import (
	"fmt"
	"strconv"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// refuse answers a message here which its class has no room for: in the protocol, or by
// ending the connection if that has no way to.
func (m *message) refuse(reason stats.Reason) {
	l := m.lane
	x, f := l.x, m.frame()
	m.class.CountRefused(reason, int64(m.n))
	if m.follower != nil {
		m.follower.Refused(x.now, reason)
	}
	if m.buf == nil && !m.refusable { // the connection ends, and counts as lost what it has read
		l.in.consume(int(m.n))
	}
	m.release()
	if !f.Refusable {
		x.host.Fail(stats.Overflow)
		return
	}
	switch {
	case f.Close:
		l.state = discarding
	case x.isHTTP() && !l.found.whole: // of other protocols others may have been found since
		l.state = swallowing
	}
	if x.link.Refuse(f, x.down.body.due == 0) {
		x.answer(f)
	}
}

// answerDue writes the refusals whose turn has come among the answers.
func (x *Exchange) answerDue() (any bool) {
	for {
		var due bool
		if x.refused, due = x.link.Due(); !due {
			return any
		}
		x.answer(&x.refused)
		any = true
	}
}

// answer writes a refusal to the client, behind the messages that have been passed on.
func (x *Exchange) answer(m *frame.Message) {
	class := x.classes.all[m.Tag]
	refusal := frame.Refusal{Now: x.now, Wait: class.Retry(x.now, shaper.Cost{Messages: max(m.Cost, 1)})}
	if rate := class.Rate(); rate.Kind() == unit.Messages && !rate.IsZero() {
		refusal.Policy, refusal.Window = class.Name(), rate.Period()
		refusal.Quota = rate.Units(refusal.Window)
	}
	x.refusal = x.link.AppendRefusal(x.refusal[:0], m, refusal)
	x.down.out.send(x.refusal)
	if m.Close && !x.stopped {
		x.down.state = finishing
		x.host.Linger()
	}
}

// congested is the most that SMPP 5.0 can say of a provider's load.
const congested = 101

// answered takes what the message says that the provider has just sent to its end, if it
// answers a request.
func (x *Exchange) answered() {
	m := &x.down.found.message
	if !m.Answers {
		return
	}
	m.Answers = false
	if x.watcher != nil {
		x.watcher.Answered(x.now, m.Sequence)
	}
	class := x.classes.all[m.Tag]
	tooFast := m.Throttle.Limited || m.Throttle.Congestion == congested
	if tooFast {
		class.Throttled(x.now, m.Throttle.Pause(x.now), x.signal(m))
	}
	class.Answered(x.now, !tooFast)
}

// signal names what the provider has said.
func (x *Exchange) signal(m *frame.Message) string {
	switch {
	case !m.Throttle.Limited:
		return "congestion"
	case x.protocol == policy.SMPP:
		return fmt.Sprintf("%#x", m.Status)
	}
	return strconv.Itoa(m.Status)
}

// finished goes on after a message that was passed on to its end.
func (l *lane) finished() {
	if l.body.ends = false; !l.isUp() {
		l.x.answered()
		l.x.answerDue()
	}
}

// reasonOf returns why a message is refused.
func reasonOf(v shaper.Verdict) stats.Reason {
	if v == shaper.TooLong {
		return stats.MaxWait
	}
	return stats.QueueFull
}

package exchange

import (
	"fmt"
	"strconv"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// refuse refuses a message that its class has no room for. If the protocol has no refusal, the
// connection ends.
func (m *message) refuse(reason stats.Reason) {
	l := m.lane
	x, f, cost := l.x, m.frame(), m.item.Cost
	m.class.Tally().Refused(reason, int64(m.n))
	if m.follower != nil {
		m.follower.Refused(x.now, reason)
	}
	if m.buf == nil && !m.refusable { // the connection ends, and its end does not count these bytes again
		l.in.consume(int(m.n))
	}
	hasPassed := m.attempts > 0
	x.classes.use(f.Tag) // until the refusal is written
	m.release()
	if !f.Refusable {
		x.classes.disuse(x.now, f.Tag)
		x.host.Fail(stats.Overflow)
		return
	}
	switch {
	case f.Close:
		l.state = discarding
	case x.isHTTP() && !l.found.whole && !hasPassed: // in other protocols, found may be a later message
		l.state = swallowing
	}
	if x.link.Refuse(f, x.down.body.remaining == 0) {
		x.writeRefusal(f, cost)
		x.classes.disuse(x.now, f.Tag)
		return
	}
	x.due = append(x.due, dueRefusal{f.Tag, cost})
}

// dropDue ends the uses of the tags of refusals that are not written any more.
func (x *Exchange) dropDue() {
	for _, r := range x.due {
		x.classes.disuse(x.now, r.tag)
	}
	x.due = nil
}

// writeDueRefusals writes the refusals whose turn has come. It reports whether there were any.
func (x *Exchange) writeDueRefusals() (any bool) {
	for {
		var due bool
		if x.refused, due = x.link.Due(); !due {
			return any
		}
		var next dueRefusal
		if len(x.due) > 0 { // else the connection has ended meanwhile
			next = x.due[0]
		}
		x.writeRefusal(&x.refused, next.cost)
		if any = true; len(x.due) > 0 {
			x.classes.disuse(x.now, x.due[0].tag)
			x.due = x.due[:copy(x.due, x.due[1:])]
		}
	}
}

// A dueRefusal is a refusal that is not written yet.
type dueRefusal struct {
	tag  uint16
	cost shaper.Cost // of the refused message
}

// writeRefusal writes the refusal of a message that costs so much to the client, behind the
// messages that were passed on.
func (x *Exchange) writeRefusal(m *frame.Message, cost shaper.Cost) {
	class := x.classes.all[m.Tag].class
	cost.Messages = max(cost.Messages, 1)
	refusal := frame.Refusal{Now: x.now, Wait: class.Retry(x.now, cost)}
	refusal.Position, refusal.Expected = class.Place(x.now, cost)
	if rate := class.Rate(); rate.Kind().OfMessages() && !rate.IsZero() {
		refusal.Policy, refusal.Window = class.Name(), rate.Period()
		refusal.Quota = rate.Units(refusal.Window)
	}
	x.refusal = x.link.AppendRefusal(x.refusal[:0], m, refusal)
	x.down.out.send(x.refusal)
	if m.Close && !x.stopped {
		x.down.state = finishing
		x.linger(stats.Overflow)
	}
}

// congested is the highest value of frame.Throttle.Congestion.
const congested = 101

// noteAnswer tells the class of a request that its answer has been passed on, and what the
// answer says about the rate. It does nothing if the last message of the provider answers no
// request.
func (x *Exchange) noteAnswer() {
	m := &x.down.found.message
	if !m.Answers {
		return
	}
	m.Answers = false
	if x.watcher != nil {
		x.watcher.Answered(x.now, m.Sequence)
	}
	x.accounts.end(x.now)
	x.heed(m)
	x.classes.disuse(x.now, m.Tag)
}

// heed tells the class of a request what its answer says about the rate, once.
func (x *Exchange) heed(m *frame.Message) {
	if x.down.found.heeded {
		return
	}
	x.down.found.heeded = true
	class := x.classes.all[m.Tag].class
	tooFast := m.Throttle.Limited || m.Throttle.Congestion == congested
	if x.accounts.tell(x.now) {
		tooFast = true
	} else if tooFast {
		class.Throttled(x.now, m.Throttle.Pause(x.now), x.signal(m))
	}
	class.Answered(x.now, !tooFast)
}

// signal names what the provider said, for people.
func (x *Exchange) signal(m *frame.Message) string {
	switch {
	case !m.Throttle.Limited:
		return "congestion"
	case x.protocol == policy.SMPP:
		return fmt.Sprintf("%#x", m.Status)
	}
	return strconv.Itoa(m.Status)
}

// swallow throws an answer away, which begins with the message that was found.
func (l *lane) swallow() {
	l.state = swallowing
	l.in.consume(l.found.size)
	if l.found.whole {
		l.swallowed()
	}
}

// swallowed ends that.
func (l *lane) swallowed() {
	l.found.open = false
	if l.state = reading; !l.isUp() {
		l.x.accounts.end(l.x.now)
		l.x.writeDueRefusals()
	}
}

// messageEnded is called after the last byte of a message was passed on.
func (l *lane) messageEnded() {
	if l.body.ends = false; l.isUp() {
		l.backlog.grown()
		return
	}
	l.found.open = false
	l.x.noteAnswer()
	l.x.writeDueRefusals()
	if l.x.isLast && !l.x.stopped {
		l.state = finishing
		l.x.linger(stats.Aged)
	}
}

// reasonOf returns the reason of a refusal.
func reasonOf(v shaper.Verdict) stats.Reason {
	if v == shaper.TooLong {
		return stats.MaxWait
	}
	return stats.QueueFull
}

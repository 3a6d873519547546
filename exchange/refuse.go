package exchange

import (
	"time"

	"shaper/frame"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// refuse refuses a message that its class has no room for, and releases it. If the protocol has no refusal, the
// connection ends.
func (m *message) refuse(reason stats.Reason) {
	x, refused := m.lane.x, m.refused(reason)
	m.release()
	x.refusals.add(refused)
}

// refusedMessage is what a refusal needs of a message, which may be released before it.
type refusedMessage struct {
	lane      *lane
	frame     *frame.Message
	cost      shaper.Cost
	hasPassed bool // its body was passed on before, since it is refused again
}

// refused notes that a message is refused. Its tag is used until the refusal is written.
func (m *message) refused(reason stats.Reason) refusedMessage {
	m.class.Tally().Refused(reason, int64(m.payload.n))
	if m.follower != nil {
		m.follower.Refused(m.lane.x.now, reason)
	}
	m.lane.found.lost = true // see lose
	m.lane.x.classes.use(m.tag)
	return refusedMessage{m.lane, m.frame(), m.item.Cost, m.attempts > 0}
}

// refusals writes refusals to the client. HTTP answers requests in their order. So there a refusal
// waits until the requests before it have their answers, and uses the tag of its message until it
// is written or dropped.
type refusals struct {
	x         *Exchange
	unwritten []unwritten   // in order
	refused   frame.Message // the refused message, while its refusal is written
}

// An unwritten is a refusal that waits for its turn to be written.
type unwritten struct {
	tag  uint16
	cost shaper.Cost // of the refused message
}

// add writes the refusal of a message at once if its turn has come, and else when writeDue finds that it has. If the protocol
// has no refusal for the message, the connection ends.
func (r *refusals) add(m refusedMessage) {
	x, l, f := r.x, m.lane, m.frame
	if !f.Refusable {
		x.classes.disuse(x.now, f.Tag)
		x.host.Fail(stats.Overflow)
		return
	}
	switch {
	case f.Close:
		l.state = discarding
	case x.protocol.isHTTP() && !l.found.whole && !m.hasPassed: // in other protocols, found may be a later message
		l.waste.begin()
	}
	if x.link.Refuse(f, x.down.body.remaining == 0) {
		r.write(f, m.cost)
		x.classes.disuse(x.now, f.Tag)
		return
	}
	r.unwritten = append(r.unwritten, unwritten{f.Tag, m.cost})
}

// drop forgets the refusals that are not written, and ends the uses of their tags.
func (r *refusals) drop() {
	for _, w := range r.unwritten {
		r.x.classes.disuse(r.x.now, w.tag)
	}
	r.unwritten = nil
}

// writeDue writes the refusals whose turn has come. It reports whether there were any.
func (r *refusals) writeDue() (any bool) {
	x := r.x
	for {
		var due bool
		if r.refused, due = x.link.Due(); !due {
			return any
		}
		var next unwritten
		if len(r.unwritten) > 0 { // else the connection has ended meanwhile
			next = r.unwritten[0]
		}
		r.write(&r.refused, next.cost)
		if any = true; len(r.unwritten) > 0 {
			x.classes.disuse(x.now, r.unwritten[0].tag)
			r.unwritten = r.unwritten[:copy(r.unwritten, r.unwritten[1:])]
		}
	}
}

// write writes to the client the refusal of a message with its cost, behind the messages that
// were passed on.
func (r *refusals) write(m *frame.Message, cost shaper.Cost) {
	x := r.x
	refusal := frame.Refusal{}
	if x.protocol.isHTTP() { // others only say that it is refused
		cost.Messages = max(cost.Messages, 1)
		refusal = refusalBy(x.now, x.classes.all[m.Tag].class.Estimate(), cost)
	}
	x.text = x.link.AppendRefusal(x.text[:0], m, refusal)
	x.down.out.send(x.text)
	if m.Close && !x.stopped && x.down.in.end == open { // else the end of the provider follows the refusal
		r.endConnection()
	}
}

// refusalBy returns what a refusal says of the class, which is too full for a message with its cost.
func refusalBy(now time.Time, class shaper.Estimate, cost shaper.Cost) frame.Refusal {
	r := frame.Refusal{Now: now, Wait: class.Retry(now, cost)}
	r.Position, r.Expected = class.Place(now, cost)
	if quota := class.Quota(now, cost); quota.Kind.OfMessages() && quota.Units > 0 {
		r.Policy, r.Quota, r.Tokens, r.Window = quota.Class, quota.Units, quota.Kind == unit.Tokens, quota.Window
	}
	return r
}

// endConnection ends the connection with the refusal that was written last.
func (r *refusals) endConnection() {
	r.x.down.state = finishing
	r.x.linger(stats.Overflow)
}

// A waste throws away what its lane has found: the body of a request that was refused, or an answer
// that the client does not get, because its request is sent again. The lane is swallowing meanwhile.
// Peers may send such a body without end, so it has bounds.
type waste struct {
	lane  *lane
	since time.Time // when it began
	bytes int       // of the body
}

// begin begins to throw away the body of what was found.
func (w *waste) begin() {
	w.lane.state, w.since, w.bytes = swallowing, w.lane.x.now, 0
}

// all throws away what was found.
func (w *waste) all() {
	l := w.lane
	w.begin()
	l.found.consume()
	if l.found.whole {
		w.end()
	}
}

// take throws away n bytes of the body. ends says that these are the last.
func (w *waste) take(n int, ends bool) {
	w.lane.in.consume(n)
	w.bytes += n
	if ends {
		w.end()
	}
}

// end ends the state swallowing: the last byte was thrown away.
func (w *waste) end() {
	l := w.lane
	l.found.open = false
	if l.state = reading; !l.isUp() {
		l.x.requests.accounts.end(l.x.now)
		l.x.refusals.writeDue()
	}
}

// isEndless reports whether more is thrown away than such a body may have.
func (w *waste) isEndless() bool {
	return w.lane.state == swallowing && w.bytes > frame.MaxSwallow
}

// reasonOf returns the reason of a refusal.
func reasonOf(v shaper.Verdict) stats.Reason {
	if v == shaper.TooLong {
		return stats.MaxWait
	}
	return stats.QueueFull
}

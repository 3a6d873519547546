package shaper

import (
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A Copy stands in a trial for what really comes: a message, a connection, a datagram, or
// the bytes of a stream. The lock of its trial guards it. A nil Copy stands for what no
// class of the trial limits.
type Copy struct {
	trial  *Trial
	class  *Class // that it enters
	item   Item
	sender sender // whose next copies it may hold up; nil: none
	next   *Copy  // in a list: of spare copies, of those held up or parked, or of the twins of a source
	offer  Offer

	// A twin stands for all bytes that its source would send.
	stream bool
	rest   int64 // bytes that have not entered

	waits bool      // it is in the queue of its class
	over  bool      // it would have been dropped, or has its answer
	left  time.Time // zero: it has not left

	// An answer comes as long after the copy has left as it came after the message.
	sent     time.Time // when the message really left; zero: it did not
	answered bool      // the message has its answer, or will not get one
	latency  time.Duration
	answer   event
	place    int // in Guest.copies, plus 1; 0: it is not there
}

// mostCopies bounds the copies that wait in a class: twice the longest queue of messages.
// Those of sources which the class would hold up may be any number, since nothing really
// holds these up.
const mostCopies = 1 << 16

// A sender is told what becomes of its copies.
type sender interface {
	// waits says that a copy is in the queue of its class.
	waits(x *Copy)
	// park keeps a message for which its class has no room, as the offer says.
	park(x *Copy)
	// lost says that a copy would have been dropped or refused.
	lost(x *Copy)
	// leaves says that a copy which waited is leaving its class.
	leaves(x *Copy)
	// left says that it has left.
	left(x *Copy)
	// asked says that a copy has left which gets an answer.
	asked(x *Copy)
	// ended says that a copy is done with.
	ended(x *Copy)
	// answered says that a copy had its answer, after ended.
	answered()
}

// enter offers the copy to its class, and does what that says.
func (x *Copy) enter() {
	if x.class.queue.Len() >= mostCopies {
		x.class.tally.overlimit()
		x.rest = 0
		x.end()
		return
	}
	x.judge(x.ask())
}

// ask offers the copy to its class.
func (x *Copy) ask() Verdict {
	verdict := x.class.Enter(x.trial.latest, &x.item)
	x.trial.expect(x.class)
	return verdict
}

// judge does what the class says of the copy.
func (x *Copy) judge(verdict Verdict) {
	switch verdict {
	case Leaves:
		if x.item.Busy = true; !x.stream {
			x.departed()
		}
	case Waits:
		if x.waits = true; x.sender != nil {
			x.sender.waits(x)
		}
	case Full:
		x.full(stats.QueueFull)
	case TooLong:
		x.full(stats.MaxWait)
	}
}

// full does what would really be done with a copy for which its class has no room. Of
// datagrams that would leave together, as many enter as there is room for.
func (x *Copy) full(reason stats.Reason) {
	switch {
	case x.sender != nil && x.offer.Waits:
		x.sender.park(x)
		return
	case x.item.Cost.Packets > 1:
		x.trial.split(x.class, x.item.Cost, 1, x.item.Patient)
		x.end()
		return
	}
	x.class.tally.lose(reason, &x.item.Cost)
	x.rest = 0
	if x.sender != nil {
		x.sender.lost(x)
	}
	x.end()
}

// Leave implements Owner: the copy's time has come.
func (x *Copy) Leave(now time.Time) {
	x.waits, x.item.Busy = false, true
	s := x.sender
	if s != nil {
		s.leaves(x)
	}
	if x.stream {
		x.goOn()
	} else {
		x.departed()
	}
	if s != nil {
		s.left(x)
	}
}

// departed follows the copy out of its class.
func (x *Copy) departed() {
	if !x.item.Asks {
		x.end()
		return
	}
	if x.left = x.trial.latest; x.sender != nil {
		x.sender.asked(x)
	}
	x.expectAnswer()
}

// send sends so many bytes more, as soon as the twin may.
func (x *Copy) send(n int64) {
	x.rest += n
	if !x.waits {
		x.item.Busy = false
		x.goOn()
	}
}

// goOn lets the bytes enter the class, piece by piece, until one has to wait.
func (x *Copy) goOn() {
	for x.rest > 0 && !x.waits {
		n := min(x.rest, x.class.Piece())
		x.item.Cost, x.item.Held = Cost{Bytes: n}, n
		x.rest -= n
		x.enter()
	}
	if !x.waits {
		x.end()
	}
}

// Sent says when the message that the copy stands for has really left.
func (x *Copy) Sent(now time.Time) {
	if x != nil {
		defer x.trial.at(now).Unlock()
		x.sent = now
	}
}

// Answered says that the message has its answer at now, or will not get one. The caller
// does not use the copy any more.
func (x *Copy) Answered(now time.Time) {
	if x != nil {
		defer x.trial.at(now).Unlock()
		x.answeredAt(now)
	}
}

// answeredAt is Answered with the lock of the trial.
func (x *Copy) answeredAt(now time.Time) {
	if x.answered = true; !x.sent.IsZero() {
		x.latency = now.Sub(x.sent)
	}
	x.expectAnswer()
}

// expectAnswer schedules the answer, as soon as it is known when that comes.
func (x *Copy) expectAnswer() {
	switch {
	case !x.answered:
	case x.over:
		x.recycle()
	case !x.left.IsZero():
		x.answer.of = x
		x.trial.schedule(x.left.Add(x.latency), &x.answer)
	}
}

// happen answers the copy.
func (x *Copy) happen() {
	s := x.sender
	x.class.Answered(x.trial.latest, true)
	x.trial.expect(x.class)
	x.end()
	if s != nil {
		s.answered()
	}
}

// end forgets the copy, which is done with. Answered may still be called.
func (x *Copy) end() {
	if x.sender != nil {
		x.sender.ended(x)
	}
	x.over = true
	if !x.stream && (!x.item.Asks || x.answered) {
		x.recycle()
	}
}

// abandon takes the copy out of its class, or says that its answer will not come.
func (x *Copy) abandon(now time.Time) {
	x.rest = 0
	switch {
	case x.waits:
		x.waits = false
		x.class.Cancel(now, &x.item)
		x.trial.expect(x.class)
	case x.item.Asks && !x.left.IsZero():
		x.trial.unschedule(&x.answer)
		x.class.Answered(now, false)
		x.trial.expect(x.class)
	}
	x.end()
}

// neverAnswered says that the answer will not come, unless it has come.
func (x *Copy) neverAnswered(now time.Time) {
	if x.item.Asks && !x.answered && !x.over {
		x.answeredAt(now)
	}
}

func (x *Copy) recycle() { x.next, x.trial.spare = x.trial.spare, x }

// each lets copies of a datagram, or of several, enter a class: as many together as package
// conn lets leave together. That is one if the class counts packets, and a piece if it
// counts bytes.
func (t *Trial) each(c *Class, cost Cost, patient bool) {
	together := cost.Packets
	switch {
	case c.Counts(unit.Packets):
		together = 1
	case c.Counts(unit.Bytes):
		together = c.Piece() * cost.Packets / max(cost.Bytes, 1)
	}
	t.split(c, cost, max(together, 1), patient)
}

// split lets copies of datagrams enter a class, so many together.
func (t *Trial) split(c *Class, cost Cost, together int64, patient bool) {
	n := max(cost.Packets, 1)
	for from := int64(0); from < n; from += together {
		to := min(from+together, n)
		one := cost
		one.Bytes = cost.Bytes*to/n - cost.Bytes*from/n
		one.Packets = min(cost.Packets, to-from)
		x := t.copy(c, one)
		if x.item.Patient = patient; one.Packets > 0 {
			x.item.Held = policy.Holds(one.Bytes)
		}
		x.enter()
	}
}

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
	class  *Class // the class that it enters
	item   Item
	sender sender // told what becomes of the copy; nil: nobody
	offer  Offer  // the message that it stands for; zero: it stands for something else
	joined bool   // it has joined class, which is the bucket of its key

	// Where the copy is listed.
	next       *Copy // in one list: spare, blocked or parked copies, or the twins of a source
	guestIndex int   // in Guest.copies, plus 1; 0: it is not there

	// A twin stands for all bytes that its source sends to the class.
	isTwin    bool
	remaining int64 // bytes that have not entered the class yet

	// How far it is.
	waits  bool      // it is in the queue of its class
	done   bool      // it would have been dropped, or needs no answer, or has it
	leftAt time.Time // zero: it has not left

	// The answer comes as long after the copy has left as it really came after the message.
	sent     time.Time     // when the message really left; zero: it has not
	answered bool          // the message has its answer, or will not get one
	latency  time.Duration // from sent to the answer
	answer   event         // the answer to the copy
}

// maxCopies bounds the copies that wait in a class: it is twice the longest queue of
// messages. Without a bound there could be any number of them. The class would hold their sources
// up, but in a trial nothing does.
const maxCopies = 1 << 16

// A sender is told what becomes of its copies. The lock of the trial is held.
type sender interface {
	// waits says that a copy waits in the queue of its class.
	waits(x *Copy)
	// park keeps a message for which its class has no room; see Offer.Waits.
	park(x *Copy)
	// lost says that a copy would have been dropped or refused.
	lost(x *Copy)
	// leaves says that a copy which waited is about to leave its class.
	leaves(x *Copy)
	// left says that a copy which waited has left its class.
	left(x *Copy)
	// asked says that a copy which gets an answer has left its class.
	asked(x *Copy)
	// ended says that nothing more will become of a copy.
	ended(x *Copy)
	// answered says, after ended, that a copy has had its answer.
	answered()
}

// enter offers the copy to its class, and does what the class decides.
func (x *Copy) enter() {
	if x.class.queue.Len() >= maxCopies {
		x.class.tally.overlimit()
		x.remaining = 0
		x.end()
		return
	}
	x.act(x.ask())
}

// ask offers the copy to its class.
func (x *Copy) ask() Verdict {
	verdict := x.class.Enter(x.trial.latest, &x.item)
	x.trial.expect(x.class)
	return verdict
}

// act does what the class has decided.
func (x *Copy) act(verdict Verdict) {
	switch verdict {
	case Leaves:
		if x.item.Busy = true; !x.isTwin {
			x.departed()
		}
	case Waits:
		if x.waits = true; x.sender != nil {
			x.sender.waits(x)
		}
	case Full:
		x.overflow(stats.QueueFull)
	case TooLong:
		x.overflow(stats.MaxWait)
	}
}

// overflow does what the class would do to an item for which it has no room: a message is parked,
// and anything else is dropped. Datagrams that came together enter one by one as long as there is
// room.
func (x *Copy) overflow(reason stats.Reason) {
	switch {
	case x.sender != nil && x.offer.Waits:
		x.sender.park(x)
		return
	case x.item.Cost.Packets > 1:
		x.trial.enterInGroups(x.class, x.item.Cost, 1, x.item.Patient)
		x.end()
		return
	}
	x.class.tally.lose(reason, &x.item.Cost)
	x.remaining = 0
	if x.sender != nil {
		x.sender.lost(x)
	}
	x.end()
}

// Leave implements Owner: the copy may leave.
func (x *Copy) Leave(now time.Time) {
	x.waits, x.item.Busy = false, true
	s := x.sender
	if s != nil {
		s.leaves(x)
	}
	if x.isTwin {
		x.drive()
	} else {
		x.departed()
	}
	if s != nil {
		s.left(x)
	}
}

// departed says that the copy has left its class. A copy that gets an answer now waits for the
// answer.
func (x *Copy) departed() {
	if !x.item.Asks {
		x.end()
		return
	}
	if x.leftAt = x.trial.latest; x.sender != nil {
		x.sender.asked(x)
	}
	x.expectAnswer()
}

// send gives the twin n more bytes to send.
func (x *Copy) send(n int64) {
	x.remaining += n
	if !x.waits {
		x.item.Busy = false
		x.drive()
	}
}

// drive lets the bytes of a twin enter the class, piece by piece, until a piece has to
// wait.
func (x *Copy) drive() {
	for x.remaining > 0 && !x.waits {
		n := min(x.remaining, x.class.Piece())
		x.item.Cost, x.item.Held = Cost{Bytes: n}, n
		x.remaining -= n
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
// must not use the copy afterwards.
func (x *Copy) Answered(now time.Time) {
	if x != nil {
		defer x.trial.at(now).Unlock()
		x.answeredAt(now)
	}
}

// answeredAt is Answered for a caller that holds the lock of the trial.
func (x *Copy) answeredAt(now time.Time) {
	if x.answered = true; !x.sent.IsZero() {
		x.latency = now.Sub(x.sent)
	}
	x.expectAnswer()
}

// expectAnswer schedules the answer to the copy, if it is known when that comes.
func (x *Copy) expectAnswer() {
	switch {
	case !x.answered:
	case x.done:
		x.recycle()
	case !x.leftAt.IsZero():
		x.answer.of = x
		x.trial.schedule(x.leftAt.Add(x.latency), &x.answer)
	}
}

// happen is the event of the answer.
func (x *Copy) happen() {
	s := x.sender
	x.class.Provider().Answered(x.trial.latest, true)
	x.trial.expect(x.class)
	x.end()
	if s != nil {
		s.answered()
	}
}

// end says that nothing more becomes of the copy. Answered may still be called.
func (x *Copy) end() {
	if x.sender != nil {
		x.sender.ended(x)
	}
	x.quitBucket()
	x.done = true
	if !x.isTwin && (!x.item.Asks || x.answered) {
		x.recycle()
	}
}

// quitBucket quits the bucket that the copy has joined.
func (x *Copy) quitBucket() {
	if x.joined {
		x.joined = false
		x.class.QuitKey(x.trial.latest, x.offer.Key)
		x.trial.expect(x.class)
	}
}

// abandon ends the copy early: it takes the copy out of its queue, or says that the answer
// to the copy will not come.
func (x *Copy) abandon(now time.Time) {
	x.remaining = 0
	switch {
	case x.waits:
		x.waits = false
		x.class.Cancel(now, &x.item)
		x.trial.expect(x.class)
	case x.item.Asks && !x.leftAt.IsZero():
		x.trial.unschedule(&x.answer)
		x.class.Provider().Answered(now, false)
		x.trial.expect(x.class)
	}
	x.end()
}

// neverAnswered says that the answer will not come any more, unless it has come.
func (x *Copy) neverAnswered(now time.Time) {
	if x.item.Asks && !x.answered && !x.done {
		x.answeredAt(now)
	}
}

// recycle keeps the copy for Trial.copy to use again.
func (x *Copy) recycle() { x.next, x.trial.spare = x.trial.spare, x }

// enterDatagrams lets copies of datagrams enter a class, as many together as package conn
// lets leave together: one if the class counts packets, and a piece if it counts bytes.
func (t *Trial) enterDatagrams(c *Class, cost Cost, patient bool) {
	together := cost.Packets
	switch {
	case c.Counts(unit.Packets):
		together = 1
	case c.Counts(unit.Bytes):
		together = c.Piece() * cost.Packets / max(cost.Bytes, 1)
	}
	t.enterInGroups(c, cost, max(together, 1), patient)
}

// enterInGroups lets copies of datagrams enter a class, so many together.
func (t *Trial) enterInGroups(c *Class, cost Cost, together int64, patient bool) {
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

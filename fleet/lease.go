package fleet

import (
	"time"

	"shaper/limit"
)

// A Lease is what one member leases of one bucket of a class: the class itself, or one of its keys. It
// is a limit.Limiter: Next says when an item may leave with the units in hand, and Take uses
// them. Which item leaves is decided at that moment. Next returns limit.Never if too few units
// are in hand; the caller tells by Want what waits, and the Machine asks the store for more.
//
// An item of n units leaves at the slot of its unit min(n, burst), and uses the n slots from the
// first. A slot that was missed by more than Class.Late is lost, unless the slots after it in
// the same block leave room to catch up. With a burst of 1 the n slots follow one another.
//
// A Lease is not safe for concurrent use, nor beside a call of its Machine.
type Lease struct {
	hand
	forgetful
	key    string
	end    slotTime  // of the last block that the store has granted
	paused time.Time // the provider wants nothing of the key before

	reduced *Class // what SetRate has made of the class; nil: nothing

	// What is asked for.
	wanted  int64     // units of what waits
	next    items     // the next of it
	opens   time.Time // what waits cannot leave before, whatever is in hand; zero: nothing else is slower
	number  int64     // of the last Take
	asked   bool      // a Take or a Back is on its way
	unused  bool      // the Machine forgets the lease when it can
	repeat  bool      // the last Take has failed: the same number goes again
	retry   time.Time // the store said to ask again then
	crowd   crowd     // who else wants slots
	denied  int64     // if at least so many units are needed; fewer may be there now
	tookAt  time.Time // when units left last
	alone   bool      // only one item was charged then
	takenAt time.Time // when the Take was sent first

	// What is known of the window.
	usage usage
	spent spending
	heir  *Model // the store of the member's own that knows this lease
	grant *grant // of that store, and waits for a ledger; nil: nothing does
	kept  Debt   // a ledger has it
	noted bool   // a ledger was asked to keep a debt, and not to forget it

	alarm
}

// Counts are totals of a Lease.
type Counts struct {
	Used     int64 // units that items have taken
	Expired  int64 // units that were not used in time, or whose items were not sent in time
	Returned int64 // units that were given back
}

// Next implements limit.Limiter. It is exact for what is in hand, and an estimate beyond.
func (l *Lease) Next(now time.Time, ahead, n int64) time.Time {
	class := &l.machine.class
	n = l.machine.class.costOf(n)
	at, ok := l.slotOf(now, ahead, n)
	switch {
	case class.blocks():
		return limit.Never
	case ok:
		return at
	case ahead == 0:
		return limit.Never
	}
	return l.estimate(now, ahead+n)
}

// Take implements limit.Limiter.
func (l *Lease) Take(_, now time.Time, n int64) {
	m := l.machine
	cost := m.class.costOf(n)
	if l.open != nil && cost < n { // it counts as one window, whatever Amend says that it costs less
		l.open.since = now.Add(1)
	}
	n = cost
	l.counts.Used += n
	l.alone = !l.tookAt.Equal(now) // else Lost cannot tell which item it is about
	l.tookAt = now
	l.open.clear()
	l.want(max(l.wanted-n, 0))
	l.next.leave(n)
	m.busyUntil = now.Add(time.Second)
	l.over = time.Time{}
	for b := range l.held {
		took := l.takeFrom(&l.held[b], now, n)
		if l.alone {
			l.note(b, took)
		}
		if n -= took; l.held[b].local && took > 0 {
			l.spent.spend(now, &m.class, took, m.absence.ends(l.held[b].ends))
		}
	}
	l.debt += n
	l.use(now, cost)
	l.drop(now, false)
	if l.asked || m.mode == Stopped {
		return
	}
	if units, _, at := l.ask(now); units > 0 {
		m.alarms.set(l, latest(at, now))
	}
}

// Lost says that an item of n units, which was charged at the time then, has not left, because it came too late to be sent, or could
// not be. What it was granted counts as used, and also as not used in time. If no other item was charged then or since, no gap follows
// it, and units of a window go back into the hand: another item may leave with them.
func (l *Lease) Lost(then time.Time, n int64) {
	n = l.machine.class.costOf(n)
	if l.alone && l.tookAt.Equal(then) {
		l.unuse(n)
		n -= l.untake()
	}
	l.counts.Expired += n
}

// Amend implements limit.Amender. What an item costs more is charged now. What it costs less goes back into the hand if the item was
// charged for the window that is open: of a sliding log, for what the store has granted last. What it costs less in slots is lost, and
// what it costs less after the rate was lowered, until the store has granted something by that.
func (l *Lease) Amend(now, then time.Time, n int64) {
	switch {
	case n > 0:
		l.Take(now, now, n)
	case l.machine.mode == FromStore:
		l.refund(now, then, -n, l.class().Rate)
		l.machine.wake(l, now)
	}
}

// class returns what the store has to know of the class for this bucket.
func (l *Lease) class() *Class {
	if l.reduced != nil {
		return l.reduced
	}
	return l.machine.current
}

// Want says how many units wait, all in all, and how many each of the next items needs, as far as that is known: at
// least for the first; 0 and 0 if nothing waits. Take subtracts what leaves.
func (l *Lease) Want(now time.Time, units int64, next ...int64) {
	if same := l.next.set(next, &l.machine.class); same && units == l.wanted {
		return
	}
	l.want(units)
	if units > 0 {
		l.machine.busyUntil = now.Add(time.Second)
	}
	l.machine.wake(l, now)
}

// Hold says that other limits are slower: nothing of what waits leaves before until. So the lease asks for no slot
// before that, and for no more than what waits: they would be lost. Units of a window are not, and it asks for them as
// before. The zero time says that nothing else is slower.
func (l *Lease) Hold(now, until time.Time) {
	l.opens = until
	l.machine.wake(l, now)
}

// RefusedUntil returns until when a window has no room for an item of n units: the store has refused so many units, or
// fewer, and said until when. If it has not, or if the units are in hand, or if that was said a while ago, the time has passed.
func (l *Lease) RefusedUntil(now time.Time, n int64) (until time.Time) {
	have, _ := l.inHand(now)
	if l.machine.class.Algorithm == Slots || n-max(have, 0) < l.denied || !now.Before(limit.After(l.takenAt, patience(l.machine, l.keyed))) {
		return until
	}
	return l.retry
}

// want notes how many units wait.
func (l *Lease) want(units int64) {
	switch m := l.machine; {
	case l.wanted == 0 && units > 0:
		m.waiting++
	case l.wanted > 0 && units == 0:
		m.waiting--
		l.crowd.pressed = false
	}
	l.wanted = units
}

// Key returns the key of the bucket; "" is the class itself.
func (l *Lease) Key() string { return l.key }

// sweep forgets a lease that nobody uses any more, if nothing depends on it.
func (m *Machine) sweep(l *Lease, now time.Time) {
	switch {
	case !l.unused, l.asked, l.held[0].units > 0, l.debt > 0:
	case l.spent.owes(now) && now.Before(m.recovered):
		m.alarms.set(l, m.recovered)
	case l.spent.owes(now):
		m.alarms.set(l, l.spent.until())
	case now.Before(l.free()):
		m.alarms.set(l, l.free())
	default:
		m.alarms.clear(l)
		delete(m.leases, l.key)
		m.gone.add(l.counts)
	}
}

// A forgetful limiter is one for which the store remembers.
type forgetful struct{}

// Memory implements limit.Limiter. There is nothing.
func (forgetful) Memory(now time.Time) (m limit.Memory, whole bool) {
	return limit.Memory{Until: now, At: now}, true
}

// Remember implements limit.Limiter.
func (forgetful) Remember(limit.Memory) {}

func (c *Counts) add(o Counts) {
	c.Used, c.Expired, c.Returned = c.Used+o.Used, c.Expired+o.Expired, c.Returned+o.Returned
}

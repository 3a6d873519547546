package fleet

import (
	"time"

	"shaper/limit"
)

// A Lease is what one member holds of one bucket of a class: the class itself, or one of its keys. It
// is a limit.Limiter: Next says when an item may leave with the units in hand, and Take uses
// them. Which item leaves is decided at that moment. Next returns limit.Never if too few units
// are in hand; the caller tells by Want what waits, and the Machine asks the store for more.
//
// An item of n units leaves at the slot of its unit min(n, burst), and uses the n slots from the
// first. A slot that was missed by more than Class.Late is lost, unless the slots after it in
// the same block leave room to catch up. With a burst of 1 the n slots follow one another.
//
// A Lease is not safe for concurrent use, also not beside its Machine.
type Lease struct {
	machine *Machine
	key     string

	// What is in hand: the earlier block first. A block without units is none.
	held  [2]block
	end   slotTime  // of the last block that the store has granted
	floor time.Time // no unit before this: the provider's gap after the last departure, or a pause
	debt  int64     // units that have left without a slot; the next blocks pay

	paused time.Time // the provider wants nothing of the key before

	reduced *Class // what SetRate has made of the class; nil: nothing

	// What is asked for.
	wanted  int64     // units of what waits
	need    int64     // units of the next item
	number  int64     // of the last Take
	own     int64     // the same at the share of the member
	asked   bool      // it is on its way
	unused  bool      // the Machine forgets the lease when it can
	repeat  bool      // its answer has not come: the same number goes again
	retry   time.Time // the store said to ask again then
	tookAt  time.Time // when units left last
	takenAt time.Time // when the Take was sent first

	// What is known of the window.
	used      int64 // units
	usedUntil time.Time
	told      Stamp // until when the store recovers that has heard this
	spent     int64 // units that left at the member's share, and that the store does not know of
	spentTill time.Time
	heir      *Model // the store of the member's own that knows this lease

	alarm
	counts Counts
}

// A slotTime is a slot by the store's clock, in whole microseconds and parts of one.
type slotTime struct {
	us  Stamp
	rem int64
}

// Counts are totals of a Lease.
type Counts struct {
	Used     int64 // units that left
	Expired  int64 // units that were not used in time
	Returned int64 // units that were given back
}

// Next implements limit.Limiter. It is exact for what is in hand, and an estimate beyond.
func (l *Lease) Next(now time.Time, ahead, n int64) time.Time {
	class := &l.machine.class
	n = l.machine.class.costOf(n)
	at, ok := l.slotOf(now, ahead, n)
	switch {
	case ok:
		return at
	case ahead == 0 || class.blocks():
		return limit.Never
	}
	return l.estimate(now, ahead+n)
}

// slotOf returns when an item of n units may leave with the units in hand, after ahead others.
func (l *Lease) slotOf(now time.Time, ahead, n int64) (at time.Time, ok bool) {
	if l.debt > 0 {
		return at, false
	}
	next := int64(1) // what the next item costs
	if ahead == 0 {
		next = n
	}
	i, n := ahead+min(n, l.machine.class.burst())-1, ahead+n
	for b := range l.held {
		b := &l.held[b]
		first := l.first(b, now, next)
		units := b.units - first
		if i >= 0 && i < units {
			at, ok = latest(b.slot(first+i), l.floor), true
			if ahead == 0 && l.machine.late.keeps {
				return at, true // first has seen that the item fits
			}
		}
		i, n = i-units, n-units
	}
	return at, ok && n <= 0
}

// estimate returns when about n units have left, if the members share the rate.
func (l *Lease) estimate(now time.Time, n int64) time.Time {
	from := now
	for b := range l.held {
		b := &l.held[b]
		if first := l.first(b, now, 1); first < b.units {
			n -= b.units - first
			from = b.slot(b.units - 1)
		}
	}
	if l.retry.After(from) {
		from = l.retry
	}
	n = min(n*l.machine.rivals, 1<<50)
	return limit.After(from, l.machine.class.Rate.Time(n))
}

// Take implements limit.Limiter.
func (l *Lease) Take(_, now time.Time, n int64) {
	m := l.machine
	n = m.class.costOf(n)
	l.counts.Used += n
	l.tookAt = now
	l.want(max(l.wanted-n, 0))
	m.busyUntil = now.Add(time.Second)
	gap := m.class.Rate.Time(n) - m.class.Late
	for b := range l.held {
		n -= l.takeFrom(&l.held[b], now, n)
	}
	l.debt += n
	if m.class.Algorithm == Slots && m.class.burst() == 1 {
		l.raise(now.Add(gap))
	}
	l.drop(now, false)
	if l.asked || m.mode == Stopped {
		return
	}
	if units, at := l.ask(now); units > 0 {
		m.alarms.set(l, latest(at, now))
	}
}

// takeFrom uses up to n units of a block, and returns how many.
func (l *Lease) takeFrom(b *block, now time.Time, n int64) int64 {
	first := l.first(b, now, n)
	if first == b.units && l.returnable(b) {
		return 0
	}
	l.counts.Expired += first - b.used
	n = min(n, b.units-first)
	b.used = first + n
	if m := l.machine; b.local && m.class.Algorithm != Slots {
		l.spent += n
		l.spentTill = now.Add(m.class.Window)
	}
	return n
}

// first returns the first unit of a block at which an item of n units may leave at now or later.
func (l *Lease) first(b *block, now time.Time, n int64) int64 {
	more := int64(0)
	if after := &l.held[1]; b != after && after.joins {
		more = after.left()
	}
	return b.first(latest(now, l.floor), n, more, l.machine.late)
}

func (l *Lease) raise(floor time.Time) {
	if floor.After(l.floor) {
		l.floor = floor
	}
}

// class returns what the store has to know of the class for this bucket.
func (l *Lease) class() *Class {
	if l.reduced != nil {
		return l.reduced
	}
	return l.machine.current
}

// Memory implements limit.Limiter. The store remembers; so there is nothing.
func (l *Lease) Memory(now time.Time) (m limit.Memory, whole bool) {
	return limit.Memory{Until: now, At: now}, true
}

// Remember implements limit.Limiter.
func (l *Lease) Remember(limit.Memory) {}

// Want says how many units wait, all in all, and how many the next item needs; 0 and 0 if
// nothing waits.
func (l *Lease) Want(now time.Time, units, need int64) {
	if need = l.machine.class.costOf(need); units == l.wanted && need == l.need {
		return
	}
	l.want(units)
	l.need = need
	if units > 0 {
		l.machine.busyUntil = now.Add(time.Second)
	}
	l.machine.wake(l, now)
}

// want notes how many units wait.
func (l *Lease) want(units int64) {
	switch m := l.machine; {
	case l.wanted == 0 && units > 0:
		m.waiting++
	case l.wanted > 0 && units == 0:
		m.waiting--
	}
	l.wanted = units
}

// Key returns the key of the bucket; "" is the class itself.
func (l *Lease) Key() string { return l.key }

// Counts returns the totals since the Lease was made.
func (l *Lease) Counts() Counts { return l.counts }

// sweep forgets a lease that nobody uses any more, if nothing depends on it.
func (m *Machine) sweep(l *Lease, now time.Time) {
	switch {
	case !l.unused, l.asked, l.held[0].units > 0, l.debt > 0, l.owes(now):
	case now.Before(l.floor):
		m.alarms.set(l, l.floor)
	default:
		m.alarms.clear(l)
		delete(m.leases, l.key)
		m.gone.add(l.counts)
	}
}

func (c *Counts) add(o Counts) {
	c.Used, c.Expired, c.Returned = c.Used+o.Used, c.Expired+o.Expired, c.Returned+o.Returned
}

// inHand returns how many units may still leave, and the slot of the last of them.
func (l *Lease) inHand(now time.Time) (units int64, last time.Time) {
	for b := range l.held {
		b := &l.held[b]
		if first := l.first(b, now, 1); first < b.units {
			units += b.units - first
			last = b.slot(b.units - 1)
		}
	}
	return units - l.debt, last
}

// returnable reports whether the store takes the rest of a block back when its time is over. It is so for a
// sliding log: there, units that have not left would count for the whole window. If the class has
// other limits too, these are many.
func (l *Lease) returnable(b *block) bool {
	return l.machine.class.Algorithm == SlidingLog && l.machine.mode == FromStore && !b.local && b.left() > 0
}

// drop forgets blocks that are over, and those of the member's own share if own. What is returnable
// stays for giveBack.
func (l *Lease) drop(now time.Time, own bool) {
	for b := range l.held {
		b := &l.held[b]
		if own && b.local || l.first(b, now, 1) == b.units && !l.returnable(b) {
			l.counts.Expired += b.left()
			*b = block{}
		}
	}
	if l.held[0].units == 0 {
		l.shift()
	}
}

// shift makes the second block the first.
func (l *Lease) shift() {
	l.counts.Expired += l.held[0].left()
	l.held[0], l.held[1] = l.held[1], block{}
	l.held[0].joins = false
}

// owes reports whether the store has to hear how much of the share has left.
func (l *Lease) owes(now time.Time) bool { return l.spent > 0 && now.Before(l.spentTill) }

// add puts a block into the hand. There is room: the Machine asks only then.
func (l *Lease) add(b block) {
	paid := min(l.debt, b.units)
	b.used, l.debt = paid, l.debt-paid
	if l.held[0].units > 0 && l.held[1].units > 0 {
		l.counts.Expired += b.left()
		return
	}
	if l.held[0].units == 0 {
		l.held[0] = b
		return
	}
	l.held[1] = b
}

package fleet

import (
	"time"

	"shaper/limit"
)

// A Lease asks for more before the last unit in hand has left.

// poll returns the call that is due at now; false if there is none. It sets the next alarm.
func (l *Lease) poll(now time.Time) (c Call, ok bool) {
	m := l.machine
	if l.asked {
		return c, false
	}
	if c, ok = m.absence.entrust(now, l); ok || m.mode == Stopped {
		return c, ok
	}
	if l.spent.lapse(now) && m.mode == FromStore { // before its turn came
		m.owing--
	}
	l.drop(now, false)
	if c, ok = m.absence.settle(now, l); ok {
		return c, true
	}
	if c, ok = l.giveBack(now); ok {
		return c, true
	}
	owes := m.mode == FromStore && l.spent.owes(now)
	if m.mode == FromStore && (m.link.joined.IsZero() || owes && !m.link.informed()) {
		return c, false // a beat comes first: it says what the store's clock is, which window is open, and whether the store has lost what it knew
	}
	if m.mode == FromStore && (l.usage.isNews(now, m.recover) || l.giveUp()) || owes && !now.Before(m.recovered) {
		return l.take(now, 0, l.needed()), true
	}
	if owes {
		m.alarms.set(l, m.recovered)
		return c, false
	}
	units, need, at := l.ask(now)
	switch {
	case units == 0:
		return c, false
	case at.After(now):
		m.alarms.set(l, at)
		return c, false
	}
	return l.take(now, units, need), true
}

// ask returns how many units to ask for, how many of them the store has to grant at least, and when to ask.
func (l *Lease) ask(now time.Time) (units, need int64, at time.Time) {
	m := l.machine
	class := &m.class
	need = max(l.needed(), 1)
	_, fits := l.slotOf(now, 0, need)
	if fits = fits || l.wanted == 0; !fits && m.late.keeps && l.held[1].units > 0 {
		l.shift() // what remains of the first block is too small for the next item
	}
	have, last := l.inHand(now)
	switch {
	case class.blocks():
		return 0, 0, at
	case l.isFull() || fits && l.held[1].units > 0:
		l.watch(now, last)
		return 0, 0, at
	}
	rest := l.next
	if class.Algorithm == Slots && fits {
		rest, have = l.place(now, rest, have)
	}
	expected := min(l.wanted+l.soon(now), max(class.Lease(), need))
	switch {
	case fits && have >= l.wanted && have >= expected:
		if have > 0 {
			l.watch(now, last)
		}
		return 0, 0, at
	case !fits || have <= 0:
		at = now
	case class.Algorithm == Slots:
		at = last.Add(-m.link.leadTime())
	default:
		at = now
	}
	units, need = l.amount(now, have, need, fits, rest)
	return units, min(need, units), latest(at, l.soonest(now, need))
}

// needed returns how many units the next item needs; 0 if nothing waits.
func (l *Lease) needed() int64 {
	if l.wanted == 0 {
		return 0
	}
	return max(l.next.first(), 1)
}

// giveUp reports whether nothing waits any more for units that the store has refused. It does so once: others leave such units to the
// member until the store hears of that.
func (l *Lease) giveUp() bool {
	gone := l.wanted == 0 && l.denied > 1 && !l.retry.IsZero()
	if gone {
		l.denied = 0
	}
	return gone
}

// amount returns how many units to ask for if so many are in hand and the next item needs so many, and how many of them the
// store has to grant at least. fits says that the item has what it needs, and rest is what follows the items that slots in
// hand are for.
func (l *Lease) amount(now time.Time, have, need int64, fits bool, rest items) (units, least int64) {
	class := &l.machine.class
	if !fits && class.Algorithm != Slots {
		need -= have // else an item has to lie in one block
	}
	if units = min(max(l.wanted-have, l.soon(now)), class.Lease()); !fits {
		units = max(units, need)
	}
	switch units = max(units, 1); {
	case class.Algorithm == Slots:
		return rest.ask(units, l.next.first())
	case l.debt > 0:
		return l.debt, 0 // what has left is told at once, also if there is no room for the next item
	}
	return units, need
}

// soonest returns when to ask for so many units at the soonest, whatever is in hand.
func (l *Lease) soonest(now time.Time, need int64) time.Time {
	m := l.machine
	at := l.paused.Add(-m.link.leadTime())
	if believed := limit.After(l.takenAt, patience(m, l.keyed)); need >= l.denied && believed.Before(l.retry) {
		at = latest(at, believed)
	} else if need >= l.denied {
		at = latest(at, l.retry)
	}
	switch m.class.Algorithm {
	case Slots:
		at = latest(at, l.opens.Add(-l.ahead(now)))
		if l.unheard { // else the store grants no slot that lies in the gap
			at = latest(at, l.gap().Add(-l.ahead(now)))
		}
	case FixedWindow, SlidingWindow:
		at = latest(at, m.absence.nextWindow(now))
	}
	if m.mode == FromStore {
		at = latest(at, m.link.ready(m.class.timing()))
	}
	return at
}

// watch looks at the lease again when the slots in hand have been missed, or to give back units of a
// window that nobody wants.
func (l *Lease) watch(now, last time.Time) {
	due := now.Add(idleAfter)
	if b := &l.held[0]; l.returnable(b) && b.till.Before(due) {
		due = latest(b.till, now)
	}
	if m := l.machine; m.class.Algorithm == Slots {
		due = latest(last.Add(m.late.slot+1), now.Add(time.Millisecond))
	}
	l.machine.alarms.set(l, due)
}

// idleAfter is how long a lease keeps units of a window for what may come.
const idleAfter = 100 * time.Millisecond

// soon returns how many units will be wanted within the time of a lease. It counts only if slots come
// faster than answers do; if not, an item waits longer for a slot than for an answer.
func (l *Lease) soon(now time.Time) int64 {
	m := l.machine
	if l.unused || !l.opens.IsZero() || now.Sub(l.tookAt) >= idleAfter || l.counts.Used == 0 || l.crowd.line > 0 {
		return 0
	}
	if m.class.Algorithm == Slots && m.class.Rate.Time(1) > m.link.rtt {
		return 0
	}
	return m.class.Lease()
}

// take returns a Take. The Take has a new number, unless it repeats a Take whose answer did not
// come.
func (l *Lease) take(now time.Time, wanted, need int64) Call {
	m := l.machine
	c := m.call(now, Take, l.key)
	c.Class = l.class()
	c.Wanted, c.Need = wanted, need
	l.asked = true
	if m.class.Bounds != nil {
		c.From, c.To = m.class.windowOf(m.link.clock.stamp(now))
	}
	if m.mode == OnShare {
		m.absence.adopt(&c)
		if l.heir != m.absence.heir {
			l.heir = m.absence.heir
			if n := m.absence.spoilt(now); n > 0 {
				c.Spent = []Use{{Units: n}}
			}
		}
		return c
	}
	// A repeated number gets the same as before, and nothing else: slots that are over by now, and
	// the store would not hear of what was spent since.
	if over := m.class.Algorithm == Slots && now.Sub(l.takenAt) > m.class.timing().horizon+m.late.slot; over || !l.repeat || l.spent.isNews() {
		l.number++
		l.takenAt = now
	}
	c.Number = l.number
	l.testify(now, &c)
	return c
}

// testify adds to a call what the member knows of the window. What has left at the share of the member comes later, when
// the store knows what all members have seen used. The store takes the largest number that they say, and adds what each of
// them has spent.
func (l *Lease) testify(now time.Time, c *Call) {
	m := l.machine
	c.Known, c.Lasts = l.usage.tell(now, &m.class, m.recover)
	if l.spent.owes(now) && !now.Before(m.recovered) {
		c.Spent = l.spent.tell(now)
	}
}

// granted puts what an answer grants into the hand. If that is nothing, it notes when to ask again. local says
// that the answer comes from the member's own store.
func (l *Lease) granted(now time.Time, c *Call, r *Reply, local bool) {
	m := l.machine
	if !local {
		l.crowd.see(r)
		l.usage.learn(now, &m.class, &m.link.clock, r)
	}
	if r.Units == 0 {
		if c.Wanted > 0 {
			l.refused(now, c.Need, m.link.clock.local(r.Till), local)
		}
		m.wake(l, now)
		return
	}
	l.retry = time.Time{}
	b := block{number: c.Number, rate: c.Class.Rate, from: r.First, units: r.Units, need: int32(max(c.Need, 1)), span: r.Span, local: local}
	if m.class.Algorithm == Slots {
		period, first := periodOf(c.Class.Rate), slotTime{r.First, r.Rem}
		b.at = m.link.clock.local(r.First).Add(time.Duration(r.Rem * 1000 / period.parts))
		b.ends = r.Till
		b.joins = l.end == first && l.held[0].span == l.held[0].units
		if e := m.link.clock.error(now); !local && (e > m.vague || now.After(m.vagueTill)) {
			m.vague, m.vagueTill = e, b.at.Add(b.rate.Time(r.Span)+m.late.slot)
		}
		end := period.after(first, r.Span)
		if !local {
			alone := periodOf(l.present().Rate).length() * float64(r.Units)
			l.crowd.meet(float64(end.us-l.end.us)/alone, m.link.members, l.wanted > 0)
		}
		l.end = end
	} else {
		b.at, b.ends, b.till, b.span = now, r.Till, m.link.clock.local(r.Till), r.Units
		if !local || m.class.Algorithm != SlidingLog { // the member's own log has no other clock
			b.till = b.till.Add(-m.absence.doubt(now))
		}
		if !local {
			l.open.grant(now, &b)
		}
	}
	if paid := l.add(b); local && paid > 0 {
		l.spent.spend(now, &m.class, paid, m.absence.ends(b.ends))
	}
	m.wake(l, now)
	m.changed(l, now)
}

// refused notes that there is nothing until a time if at least so many units are needed.
func (l *Lease) refused(now time.Time, need int64, until time.Time, local bool) {
	m := l.machine
	if l.retry = until; !local { // the call has to arrive then
		l.retry = l.retry.Add(-m.link.arrival(now))
	}
	if l.denied = 0; m.class.Algorithm != Slots { // else the next slot is not there yet, whatever is needed
		l.denied = need
		m.changed(l, now)
	}
}

// giveBack returns the call that gives units of a window back that nobody wants, or that have not left in
// time.
func (l *Lease) giveBack(now time.Time) (c Call, ok bool) {
	m := l.machine
	b := &l.held[0]
	late := l.returnable(b) && !now.Before(b.till)
	switch {
	case m.class.Algorithm == Slots || !l.isOfTheStore(b) || b.remaining() == 0:
		return c, false
	case !late && (b.local || l.wanted > 0 || now.Sub(l.tookAt) < idleAfter): // nobody else wants those of the share
		return c, false
	}
	c = m.call(now, Back, l.key)
	if c.Wanted, c.From = b.remaining(), b.from; m.mode == OnShare {
		m.absence.adopt(&c)
	} else {
		l.number++
		c.Number = l.number
	}
	l.counts.Returned += b.remaining()
	l.takenAt = time.Time{} // now there is more than the store has said
	b.used = b.units
	l.shift()
	l.asked = true
	return c, true
}

package fleet

import (
	"time"

	"shaper/limit"
)

// An estimate says when an item leaves for which nothing is in hand yet, from what the store has said last.

// expect estimates when n units have left. A window with room lets them leave at once.
func (l *Lease) expect(now time.Time, n int64) time.Time {
	if l.machine.class.Algorithm == Slots {
		return l.estimate(now, n)
	}
	class := l.present()
	if class.Limit() == 0 {
		return limit.Never // the share of the member is less than a unit
	}
	room, until := l.room(now, &class)
	from := now
	if have, _ := l.inHand(now); n+1-max(have, 0) >= l.denied { // else nobody has been asked for so few since
		from = latest(from, l.retry)
	}
	switch over := n - room; {
	case over < 0:
		return from
	case class.Algorithm == FixedWindow: // after it, a window at a time
		return limit.After(latest(from, until), class.Rate.Time(over-over%class.Limit()))
	default: // what has left frees its room little by little
		return limit.After(from, class.Rate.Time(over+1))
	}
}

// room returns how many units of the present window may still leave, those in hand included, and until when what has left counts.
func (l *Lease) room(now time.Time, class *Class) (units int64, until time.Time) {
	if l.machine.mode != FromStore {
		return class.Limit() - l.spent.units(now), l.spent.until()
	}
	have, _ := l.inHand(now)
	units = class.Limit() + have
	if l.usage.counts(now) {
		units -= l.usage.units
	}
	return units, l.usage.until
}

// estimate estimates when n units have left, if the members that wait for slots get the same.
func (l *Lease) estimate(now time.Time, n int64) time.Time {
	m, class := l.machine, l.present()
	from := now
	for b := range l.held {
		b := &l.held[b]
		if first := l.first(b, now, 1); first < b.units {
			n -= b.units - first
			from = b.slot(b.units - 1)
		}
	}
	from = latest(from, l.retry)
	if m.mode == FromStore {
		n *= l.rivals + 1
	}
	return limit.After(from, class.Rate.Time(min(n, 1<<50)))
}

// present returns the class as those have it who get units at present: slots less the shares of silent members or, while the store is
// away, the share of this member. Of a window it counts the shares of silent members in: these may be back at any moment, and until then
// the store has the member ask each second.
func (l *Lease) present() Class {
	m := l.machine
	switch {
	case m.mode != FromStore:
		return m.absence.ownClass()
	case m.class.Algorithm == Slots:
		return l.class().atShare(whole - m.silent)
	}
	return *l.class()
}

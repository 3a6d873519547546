package fleet

import (
	"time"

	"shaper/limit"
	"shaper/unit"
)

// An estimate says when an item leaves for which nothing is in hand yet, from what the store has said last.

// goneAfter is for how long members have to be silent until they count as gone. Others that are silent for a moment have lost a call.
const goneAfter = 10 * time.Second

// expect estimates when n units have left. Of a window it counts the shares of silent members in, since these may be back at any moment, and
// until then the store has the member ask each second. If they are gone, nothing leaves of their shares until the hold is over.
func (l *Lease) expect(now time.Time, n int64) time.Time {
	m, class := l.machine, l.present()
	if m.class.Algorithm == Slots {
		return l.estimate(now, n)
	}
	at := outlook{l, class}.expect(now, n)
	if m.mode != FromStore || m.silent == 0 || now.Sub(m.silence) < goneAfter {
		return at
	}
	if over := m.silence.Add(class.timing().hold); over.After(at) {
		at = over
	}
	less := outlook{l, class.atShare(whole - m.silent)}
	if sooner := less.expect(now, n); sooner.Before(at) {
		return sooner
	}
	return at
}

// An outlook is what leaves of the windows of a lease if they have the rate of a class.
type outlook struct {
	lease *Lease
	class Class
}

// expect estimates when n units have left. A window with room lets them leave at once.
func (o outlook) expect(now time.Time, n int64) time.Time {
	l, class := o.lease, &o.class
	if class.Limit() == 0 {
		return limit.Never // the share of the member is less than a unit
	}
	have, _ := l.inHand(now)
	room, until := l.usage.room(now, class.Limit()+have), l.usage.until
	if l.machine.mode != FromStore {
		room, until = class.Limit()-l.spent.units(now), l.spent.until()
	}
	from := now
	if l.wanted == 0 && !now.Before(limit.After(l.takenAt, patience(l.machine, l.keyed))) {
		room = max(room, class.Limit()) // the item that comes next asks: others may have given all back
	} else if n+1-max(have, 0) >= l.denied { // else nobody has been asked for so few since
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

// Reduced returns to which rate the limit is reduced for an item of n units: to that of this member, if the store is away, or to
// what the shares of silent members leave. The zero rate says that it is not; of a window, also if others have used it up.
func (l *Lease) Reduced(now time.Time, n int64) (to unit.Rate, away bool) {
	m, class := l.machine, l.class()
	switch {
	case m.class.blocks(): // whatever the others do
		return to, false
	case m.mode != FromStore:
		return m.absence.ownClass().Rate, true
	case m.silent == 0:
		return to, false
	}
	if have, _ := l.inHand(now); class.Algorithm != Slots && l.usage.room(now, class.Limit()+have) < class.costOf(n) {
		return to, false
	}
	return class.atShare(whole - m.silent).Rate, false
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
		n = int64(min(float64(n)*l.crowd.times(), 1<<50))
	}
	return limit.After(from, class.Rate.Time(min(n, 1<<50)))
}

// present returns the class as those have it who get units at present: slots less the shares of silent members or, while the store is
// away, the share of this member.
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

// A crowd is who else wants the slots of a bucket.
type crowd struct {
	line    int32   // how many others waited for the next slot when the store answered last
	turn    float32 // how many times as long as alone the member has lately waited for a slot; 0: unknown
	pressed bool    // something has waited ever since the last grant
}

// times returns how many times as long as alone the member waits for a slot.
func (k *crowd) times() float64 { return float64(max(k.turn, float32(k.line)+1)) }

// see learns from an answer who stands in the line.
func (k *crowd) see(r *Reply) {
	if k.line = int32(r.Line); r.Units == 0 { // the member does, too
		k.line = max(k.line-1, 0)
	}
}

// meet learns from a grant of slots, which ends so many times as long after the last one as it would if the member were alone. What
// lies between the two went to others, if the member wanted it too. Not all of these stand in the line when the store answers:
// some hold slots that come. No member waits longer than for one turn of each other.
func (k *crowd) meet(times float64, members int64, waits bool) {
	turn := float32(max(1, min(times, float64(members))))
	switch {
	case !k.pressed:
		k.turn = 0
	case k.turn == 0:
		k.turn = turn
	default: // one that was late says little
		k.turn += (turn - k.turn) / 4
	}
	k.pressed = waits
}

package fleet

import (
	"fmt"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// Set puts another rate, burst and lateness in force, and another fallback. What is in hand goes on
// as it was granted, but a leaky bucket keeps the gaps of the rate in force: at a slower one, slots in
// hand that lie in such a gap are lost. The store learns of the rate with each call: a unit of this
// member takes as much of the sequence, and of a window there is as much room, as the class of this
// member says. So members with different rates are jointly between the lowest and the highest. A class
// that differs in its name or its windows needs another Machine.
func (m *Machine) Set(now time.Time, class Class, fallback Fallback) error {
	class.terms, class.Deadline, class.shortest = m.class.terms, m.class.Deadline, m.class.shortest
	switch old := &m.class; {
	case class.Name != old.Name, class.Algorithm != old.Algorithm, class.Window != old.Window, class.Rate.Kind() != old.Rate.Kind():
		return fmt.Errorf("fleet: class %q cannot take another name, algorithm, window or unit; it needs a new member", old.Name)
	case class.Rate == old.Rate && class.Burst == old.Burst && class.Late == old.Late && fallback == m.absence.fallback:
		return nil
	}
	if err := class.Check(); err != nil {
		return err
	}
	m.class, m.current, m.late, m.absence.fallback = class, &class, class.lateness(), fallback
	if m.mode == OnShare {
		m.absence.change(now)
	}
	for _, l := range m.leases {
		l.reduced, l.retry = nil, time.Time{}
		m.wake(l, now)
		m.changed(l, now)
	}
	return nil
}

// SetRate implements limit.Limiter, for this bucket and this member, until the next Machine.Set. While
// the store is away, the rate is that of the Machine.
func (l *Lease) SetRate(now time.Time, rate unit.Rate, burst int64) {
	m := l.machine
	if l.reduced = nil; rate != m.class.Rate || max(burst, 1) != m.class.burst() {
		class := m.class
		class.Rate, class.Burst = rate, burst
		l.reduced = &class
	}
	l.retry = time.Time{}
	m.wake(l, now)
}

// Counts returns the totals of all leases that there have been.
func (m *Machine) Counts() Counts {
	all := m.gone
	for _, l := range m.leases {
		all.add(l.counts)
	}
	return all
}

// Leased returns how many units are in hand.
func (m *Machine) Leased(now time.Time) (units int64) {
	for _, l := range m.leases {
		have, _ := l.inHand(now)
		units += max(have, 0)
	}
	return units
}

// Estimate implements limit.Estimator: it says when an item leaves for which nothing is in hand yet. It
// is limit.Never if the store is away and nobody knows until when nothing leaves.
func (l *Lease) Estimate(now time.Time, ahead, n int64) time.Time {
	m := l.machine
	at, most := l.Next(now, ahead, n), m.class.costOf(n)
	if m.class.Algorithm == Slots { // an item leaves at the slot of its unit min(n, burst)
		most = min(most, m.class.burst())
	}
	switch {
	case m.class.blocks(), m.mode == Stopped && m.absence.hopeless:
		return limit.Never
	case at == limit.Never || m.class.Algorithm != Slots:
		at = l.expect(now, max(ahead+most-1, 0))
	}
	return latest(at, l.paused)
}

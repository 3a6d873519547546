package fleet

import "time"

// A Debt is what a member may have used of its share of a window, and what the store does not know of. Whoever comes
// after a member under its name has to tell the store; else the share is used twice.
type Debt struct {
	Key   string // of the bucket
	Units int64
	Until time.Time // from then on it makes no difference
}

// A grant is what the member's own store has handed out. It waits until a ledger has the debt that it makes.
type grant struct {
	call  Call
	reply Reply
	debt  Debt
}

// debtMargin is how much longer than its window a Debt is kept, since clocks may be wrong.
const debtMargin = time.Second

// keep makes the member use nothing of its share of a window before a ledger has kept that: Poll returns a Keep for it,
// and Answer says that it is on the disk. debts are what was kept of the process that had the name before. The store
// hears of them before it counts the member as present. Slots need none of this: a member that comes again under its
// name fences them.
func (a *absence) keep(now time.Time, debts []Debt) {
	m := a.machine
	a.keeps = m.class.Algorithm != Slots
	for _, d := range debts {
		if !a.keeps || d.Units <= 0 || !now.Before(d.Until) {
			continue
		}
		l := m.Lease(d.Key)
		l.unused, l.noted, l.kept = true, true, d
		if m.class.Algorithm == SlidingWindow {
			d.Units = m.class.faded(d.Units, d.Until.Sub(now))
		}
		l.spent.owe(now, &m.class, d.Units, d.Until)
		m.owing++
		m.wake(l, now)
	}
}

// Owe says that the process has used units of a window without the fleet, before it became a member, and until when they
// count. The store hears of that first, and a ledger keeps it until then. Slots have no windows: nothing is owed. If some
// have left in the sliding window before the present one, units contains only what of them still counts.
func (l *Lease) Owe(now time.Time, units int64, until time.Time) {
	m := l.machine
	if m.class.Algorithm == Slots || units <= 0 || !now.Before(until) {
		return
	}
	if len(l.spent) == 0 && m.mode == FromStore {
		m.owing++
	}
	l.spent.owe(now, &m.class, units, until)
	m.wake(l, now)
}

// entrust returns the call that makes a ledger keep what Owe has said. If the process starts again before the store has
// heard of that, the new process tells it. What leaves at the share is kept before it leaves; see incur.
func (a *absence) entrust(now time.Time, l *Lease) (c Call, ok bool) {
	m := a.machine
	d, kept := Debt{Key: l.key, Units: l.spent.units(now), Until: l.spent.until()}, l.kept
	if !now.Before(kept.Until) {
		kept = Debt{}
	}
	if !a.keeps || d.Units == 0 || d.Units <= kept.Units && !d.Until.After(kept.Until) {
		return c, false
	}
	d.Units, d.Until = max(d.Units, kept.Units), latest(d.Until, kept.Until) // what was kept may still leave at the share
	l.kept, l.noted = d, true
	m.wake(l, now)
	return Call{Op: Keep, Class: m.current, Key: l.key, Member: m.member, Wanted: d.Units, Lasts: d.Until.Sub(now), at: now}, true
}

// wakeWaiting makes the leases look again that wait for an answer of the store: those whose debts it has yet to hear of or, if the member is a
// newcomer, all. A lease whose debt counts no more forgets it.
func (a *absence) wakeWaiting(now time.Time, newcomer bool) {
	if a.machine.owing == 0 && !newcomer {
		return
	}
	for _, l := range a.machine.leases {
		if newcomer || len(l.spent) > 0 {
			a.machine.wake(l, now)
		}
	}
}

// incur returns the call that keeps what a grant of the share lets leave; false if the ledger has that. The grant waits
// for the answer.
func (a *absence) incur(now time.Time, l *Lease, c *Call, r *Reply) (k Call, ok bool) {
	m := a.machine
	d := Debt{Key: l.key, Units: l.spent.units(now) + r.Units, Until: m.class.countsUntil(m.link.clock.local(r.Till), a.ends(r.Till))}
	for _, b := range l.held {
		if b.local {
			d.Units += b.remaining()
		}
	}
	if !a.keeps || r.Units == 0 || d.Units <= l.kept.Units && !d.Until.After(l.kept.Until) {
		return k, false
	}
	d.Units += a.own.Rate.Units(time.Second) // so that there is about one write in a second
	if d.Until = d.Until.Add(debtMargin); m.class.Algorithm == SlidingLog {
		d.Until = d.Until.Add(m.class.Window / 8)
	}
	l.grant, l.noted = &grant{*c, *r, d}, true
	return Call{Op: Keep, Class: m.current, Key: l.key, Member: m.member, Number: c.Number, Wanted: d.Units, Lasts: d.Until.Sub(now), at: now}, true
}

// isKept says that a ledger has kept the debt of a Keep. What waited for the ledger may leave, unless the member has the
// store again.
func (a *absence) isKept(now time.Time, c *Call) {
	l := a.machine.leases[c.Key]
	if l == nil || l.grant == nil || l.grant.call.Number != c.Number {
		return
	}
	g := l.grant
	l.kept, l.grant, l.asked = g.debt, nil, false
	l.granted(now, &g.call, &g.reply, true)
}

// withdraw drops what a lease has been granted and waits for a ledger.
func (a *absence) withdraw(l *Lease) {
	if l.grant != nil {
		l.grant, l.asked = nil, false
	}
}

// settle returns the call by which a ledger forgets a debt that the store knows of, or that makes no difference any more.
func (a *absence) settle(now time.Time, l *Lease) (c Call, ok bool) {
	m := a.machine
	if !l.noted || len(l.spent) > 0 || m.mode != FromStore {
		return c, false
	}
	l.kept, l.noted = Debt{}, false
	m.wake(l, now)
	return Call{Op: Keep, Class: m.current, Key: l.key, Member: m.member, at: now}, true
}

package fleet

import (
	"slices"
	"time"
)

// A pause is a key of which the provider wants nothing for a time; "" is the class.
type pause struct {
	key   string
	until time.Time
	again bool // the store was told of it before
}

// pauses are what a Machine knows of pauses. With each answer, a member hears of one pause of a key. It hears at once
// of a pause of the key for which it asks.
type pauses struct {
	class  time.Time // the class pauses until then
	untold []pause   // which the store does not know; those that it has only lost stand behind the others
	heard  int64     // the last pause of a key that the store has told of
}

// maxUntold bounds the pauses that wait until the store is back.
const maxUntold = 64

// Slow says that the provider has refused something of a key as too fast: no member gets anything of it for a time. The
// key "" is the class as a whole.
func (m *Machine) Slow(now time.Time, key string, wait time.Duration) {
	p := pause{key: key, until: now.Add(wait)}
	m.pauses.untold = slices.DeleteFunc(m.pauses.untold, func(o pause) bool {
		if o.key == key {
			p.until = latest(p.until, o.until)
		}
		return o.key == key
	})
	m.pauses.add(p)
	m.pauseUntil(now, p)
}

// add adds a pause that only this member knows. If there is no room, one goes that other members may know too, or else the first.
func (p *pauses) add(o pause) {
	at := slices.IndexFunc(p.untold, func(o pause) bool { return o.again })
	if at < 0 {
		at = len(p.untold)
	}
	switch {
	case len(p.untold) < maxUntold:
	case at < maxUntold:
		p.untold = p.untold[:maxUntold-1]
	default:
		p.untold, at = slices.Delete(p.untold, 0, 1), at-1
	}
	p.untold = slices.Insert(p.untold, at, o)
}

// repeatPauses tells the store of all pauses that the member knows, as far as there is room. The store has lost the pauses,
// or may have lost them: it also asks when a member was fenced. Then the store hears of pauses again that it knows.
func (m *Machine) repeatPauses(now time.Time) {
	class := m.pauses.class
	m.pauses.forget(now)
	m.pauses.repeat(now, pause{key: "", until: class})
	for key, l := range m.leases {
		if key != "" && l.paused.After(class) {
			m.pauses.repeat(now, pause{key: key, until: l.paused})
		}
	}
}

// forget forgets the pauses that are over.
func (p *pauses) forget(now time.Time) {
	p.untold = slices.DeleteFunc(p.untold, func(o pause) bool { return !o.until.After(now) })
}

// repeat adds a pause behind all others, unless it is over. It displaces no other pause: a pause that only this member
// knows has to reach the store.
func (p *pauses) repeat(now time.Time, o pause) {
	if !o.until.After(now) {
		return
	}
	for i := range p.untold {
		if u := &p.untold[i]; u.key == o.key {
			u.until = latest(u.until, o.until)
			return
		}
	}
	if o.again = true; len(p.untold) < maxUntold {
		p.untold = append(p.untold, o)
	}
}

// tellPause returns the call that tells the store of a pause; false if it knows of all that are not over.
func (m *Machine) tellPause(now time.Time) (c Call, ok bool) {
	p := &m.pauses
	if p.forget(now); len(p.untold) == 0 {
		return c, false
	}
	c = m.call(now, Pause, p.untold[0].key)
	c.Wanted = (p.untold[0].until.Sub(now) + time.Microsecond - 1).Microseconds()
	return c, true
}

// hear takes the pauses in the answer to a call into account.
func (m *Machine) hear(now time.Time, c *Call, r *Reply) {
	m.pauses.heard = r.Heard
	if c.Op == Pause {
		told := c.at.Add(time.Duration(c.Wanted) * time.Microsecond)
		m.pauses.untold = slices.DeleteFunc(m.pauses.untold, func(p pause) bool { return p.key == c.Key && !p.until.After(told) })
	}
	if r.Pause > r.Now {
		m.pauseUntil(now, pause{key: "", until: m.link.clock.local(r.Pause)})
	}
	if r.Paused != "" {
		m.pauseUntil(now, pause{key: r.Paused, until: m.link.clock.local(r.PausedTill)})
	}
}

// pauseUntil makes the lease of a key wait, or all leases.
func (m *Machine) pauseUntil(now time.Time, p pause) {
	if p.key != "" {
		if l := m.leases[p.key]; l != nil {
			p.hold(now, l)
		}
		return
	}
	m.pauses.class = latest(m.pauses.class, p.until)
	for _, l := range m.leases {
		p.hold(now, l)
	}
}

// Pausing returns until when the provider wants nothing of a key, as far as the member has heard.
func (m *Machine) Pausing(key string) time.Time {
	if l := m.leases[key]; l != nil {
		return l.paused
	}
	return m.pauses.class
}

// hold lets nothing leave from a lease before the pause is over.
func (p pause) hold(now time.Time, l *Lease) {
	if p.until.After(l.paused) {
		l.paused = p.until
		l.raise(p.until)
		l.machine.changed(l, now)
	}
}

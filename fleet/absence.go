package fleet

import (
	"time"

	"shaper/unit"
)

// A Fallback says what a class does while the store is away. The zero Fallback is the share of the member.
type Fallback struct {
	Stop bool      // nothing leaves
	Rate unit.Rate // a rate of its own, whatever others do; the zero Rate: the share
}

// An absence is how a Machine does without the store: by its share, by a rate of its own, or not at all.
type absence struct {
	machine  *Machine
	fallback Fallback

	began     time.Time     // the present absence, or the last one
	before    time.Duration // how long the store was away before, all in all
	own       Class         // the class at the share of the member, or at the rate of the fallback
	heir      *Model        // hands that out while the store is away
	heirSince time.Time
	calls     int64 // to heirs so far; a lease that is made anew goes on from there
	keeps     bool  // a ledger keeps what leaves of the share of a window; see keep
	hopeless  bool  // nothing leaves until the store is back, as of the last call of Machine.shift; see isHopeless
}

// mode returns the mode that holds at now.
func (a *absence) mode(now time.Time) Mode {
	m := a.machine
	from := a.shareFrom()
	switch {
	case !m.link.down:
		return FromStore
	case a.isHopeless(now), now.Before(from):
		return Stopped
	}
	return OnShare
}

// isHopeless reports whether the member has no share for as long as the store stays away, or whether that has ended at now.
func (a *absence) isHopeless(now time.Time) bool {
	return a.shareFrom().IsZero() || a.fallback.Rate.Kind() == 0 && !now.Before(a.shareUntil())
}

// shareFrom returns from when the member has a share if the store is away; zero if it has none.
func (a *absence) shareFrom() time.Time {
	m := a.machine
	switch {
	case a.fallback.Stop:
		return time.Time{}
	case a.fallback.Rate.Kind() != 0:
		return a.began
	case m.link.share == 0:
		return time.Time{}
	}
	return m.link.silentAt
}

// shareUntil returns when the share ends: the store has given it away after the hold, which began with the last call that it has
// heard for certain. This clock may be the slower one.
func (a *absence) shareUntil() time.Time {
	hold := a.machine.class.timing().hold
	return a.machine.link.spoke.Add(hold - hold/fastest)
}

// changesAt returns when the mode changes next if the store stays away; a time that has passed if it does not.
func (a *absence) changesAt() time.Time {
	m := a.machine
	if m.mode == OnShare {
		return a.shareUntil()
	}
	return a.shareFrom()
}

// inherit makes a store of the member's own, with its share. The first slots of that come after all
// that the real store may have granted to others.
func (a *absence) inherit(now time.Time) {
	a.setOwn(now)
	a.heir, a.heirSince = &Model{ID: "share"}, now
}

// change puts another class in force for the member's own store. What that has counted as used is as much as the limit was before. Before
// that, the limit may have been as high as it is now, and others may have used all of it: so nothing more of the window leaves.
func (a *absence) change(now time.Time) {
	was := a.own.Limit()
	if a.setOwn(now); a.own.Limit() > was {
		a.inherit(now)
	}
}

// setOwn makes the class of the member's own store.
func (a *absence) setOwn(now time.Time) {
	m := a.machine
	a.own = a.ownClass()
	t := m.class.timing()
	t.recovery = 0
	if m.class.Algorithm == Slots {
		t.transit = m.link.reach(now, &m.class) - t.horizon + m.class.Late + a.doubt(now)
	}
	a.own.terms = &t
	a.own.Burst = m.class.Burst * m.link.share / whole
}

// ownClass returns the class at the share of the member, or at the rate of the fallback.
func (a *absence) ownClass() Class {
	class := &a.machine.class
	if a.fallback.Rate.Kind() == 0 {
		return class.atShare(a.machine.link.share)
	}
	own := *class
	own.Rate = a.fallback.Rate
	return own
}

// adopt makes a call one to the member's own store, which has no other members, and gives it a number by which that store
// knows a later call.
func (a *absence) adopt(c *Call) {
	a.calls++
	c.Class, c.Number, c.Lead, c.Fence, c.Share = &a.own, a.calls, 0, 0, 0
}

// ends returns when a window has ended for all members that ends at a time of the store's clock.
func (a *absence) ends(at Stamp) time.Time {
	k := &a.machine.link
	ends := k.clock.local(at)
	return ends.Add(a.doubt(ends) + k.tooVague)
}

// doubt returns how far the times of a grant may be wrong. It is 0 for a rate of the fallback: a member keeps
// to that rate by its own clock, even if it has never known the clock of the store.
func (a *absence) doubt(now time.Time) time.Duration {
	m := a.machine
	if m.mode == OnShare && a.fallback.Rate.Kind() != 0 {
		return 0
	}
	return m.link.clock.error(now)
}

// nextWindow returns when the next window begins, if what is granted in the present one may be over when it comes. Else it
// returns a time that has passed. If the clock is not known well, an answer of the store is awaited, which tells more.
func (a *absence) nextWindow(now time.Time) (at time.Time) {
	m := a.machine
	if !m.link.clock.known() || m.mode == FromStore && !m.link.proved {
		return at
	}
	_, to := m.class.windowOf(m.link.clock.stamp(now))
	if ends := m.link.clock.local(to); !now.Before(ends.Add(-a.doubt(now))) {
		return ends
	}
	return at
}

// spoilt returns how much of the present window the member's own store has to count as used: all of it
// if the window began before, since others may have used the rest.
func (a *absence) spoilt(now time.Time) int64 {
	m := a.machine
	if m.class.Algorithm == Slots {
		return 0
	}
	at := m.link.clock.stamp(now)
	began := at.Add(-m.class.Window)
	if m.class.Algorithm == FixedWindow {
		began, _ = m.class.windowOf(at)
	}
	if began > m.link.clock.stamp(a.heirSince) {
		return 0
	}
	return a.own.Limit()
}

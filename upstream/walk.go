package upstream

import (
	"slices"
	"time"

	"shaper/policy"
)

// A Walk is the way of one session through the upstreams of its listener, until it has reached
// one. Only its session uses it, under its own lock. A Walk takes the lock of the group of
// upstreams where it needs that.
type Walk struct {
	set    *Set
	tried  *[]bool // which upstreams were tried; nil: the walk takes one after the other
	target *Target // the present one, which counts the session; nil: there is none
	number int     // of the present upstream, from 1; 0 before the first
}

// Walk begins a walk.
func (s *Set) Walk() Walk {
	w := Walk{set: s}
	if s.chooses {
		tried := make([]bool, len(s.entries))
		w.tried = &tried
	}
	return w
}

// Number returns the place of the present upstream in the list of its listener, from 1.
func (w *Walk) Number() int { return w.number }

// Upstream returns the present upstream, as the policy has it.
func (w *Walk) Upstream() string { return w.entry().upstream }

func (w *Walk) entry() *entry { return w.set.entries[w.number-1] }

// Next goes to the next upstream to try. It returns false if there is none left. If the listener
// chooses among upstreams, and the addresses of this one are known, Next also counts the session at
// its target.
func (w *Walk) Next(now time.Time) bool {
	w.Quit()
	if w.tried == nil {
		if w.number == len(w.set.entries) {
			return false
		}
		w.number++
		return true
	}
	g := w.set.group
	g.mu.Lock()
	defer g.mu.Unlock()
	w.number, w.target = w.set.next(now, *w.tried)
	if w.number == 0 {
		return false
	}
	(*w.tried)[w.number-1] = true
	w.count()
	return true
}

// Back takes the last Next back: the present upstream counts as not tried.
func (w *Walk) Back() {
	w.Quit()
	if w.tried == nil {
		w.number--
	} else {
		(*w.tried)[w.number-1] = false
	}
}

// Known returns the addresses of the present upstream if they are known: no lookup is needed.
func (w *Walk) Known() (addrs []Address, known bool) {
	addrs = w.set.group.addresses(w.entry())
	return addrs, addrs != nil
}

// Arrange returns those of the present upstream's addresses that the listener can dial from its
// own address, in the order in which to try them. If the listener chooses among addresses, it also
// counts the session at the first.
func (w *Walk) Arrange(now time.Time, addrs []Address) []Address {
	if len(addrs) == 1 && w.set.canDial(addrs[0]) {
		return addrs
	}
	addrs = slices.DeleteFunc(slices.Clone(addrs), func(at Address) bool { return !w.set.canDial(at) })
	if w.tried == nil || len(addrs) == 0 {
		return addrs
	}
	g := w.set.group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.renew(w.entry())
	if w.target == nil {
		w.target = w.set.pick(now, w.set.targetsAt(nil, w.entry(), addrs))
		w.count()
	}
	rank := func(at Address) int {
		switch t := g.target(w.entry(), at); {
		case t == w.target:
			return 0
		case t.state == Up:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(addrs, func(a, b Address) int { return rank(a) - rank(b) })
	return addrs
}

// Take counts the session at an address of the present upstream, and no longer where it was
// counted before. It returns what counts it.
func (w *Walk) Take(at Address) *Target {
	if w.target != nil && w.target.address == at {
		return w.target
	}
	w.Quit()
	g := w.set.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := w.entry(); e.literal == nil {
		g.renew(e) // which forgets the addresses that it no longer has
	}
	w.target = g.target(w.entry(), at)
	w.count()
	return w.target
}

// Target returns the present target; nil if there is none.
func (w *Walk) Target() *Target { return w.target }

// Keep returns the present target, and takes it from the walk: from now on the caller has to quit
// it.
func (w *Walk) Keep() (t *Target) {
	t, w.target = w.target, nil
	return t
}

// Quit ends the walk: no target counts the session any more.
func (w *Walk) Quit() { w.Keep().Quit() }

// count counts the session at the present target, if there is one.
func (w *Walk) count() {
	if w.target != nil {
		w.target.counter().sessions.Add(1)
	}
}

// next returns the number of the upstream to try next, and its target if its addresses are
// known. The number is 0 if all have been tried. The lock of the group is held.
func (s *Set) next(now time.Time, tried []bool) (number int, t *Target) {
	var all []*Target
	unknown, first := 0, 0
	for i, e := range s.entries {
		if tried[i] {
			continue
		}
		if first == 0 {
			first = i + 1
		}
		if addrs := s.group.renew(e); addrs != nil {
			all = s.targetsAt(all, e, addrs)
		} else if unknown == 0 {
			unknown = i + 1
		}
		if s.inOrder() && (unknown > 0 || anyUp(all)) {
			break
		}
	}
	switch {
	case anyUp(all), len(all) > 0 && unknown == 0:
		t = s.pick(now, all)
		return slices.Index(s.entries, t.entry) + 1, t
	case unknown > 0:
		return unknown, nil
	}
	return first, nil
}

// inOrder reports whether an upstream gets sessions only if those before it are not up.
func (s *Set) inOrder() bool { return s.conf.Balance == policy.InOrder || s.conf.Balance == "" }

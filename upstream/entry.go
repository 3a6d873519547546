package upstream

import (
	"slices"
	"strings"

	"shaper/policy"
)

// An entry is an upstream as a policy has it. Reloads keep it.
type entry struct {
	upstream string
	literal  []Address // nil: it is a name

	// The lock of the group guards the fields below.
	weight  int
	targets []*Target
}

// isBuiltin reports whether nothing needs to be reached.
func (e *entry) isBuiltin() bool { return e.upstream == policy.Echo || e.upstream == policy.Discard }

// isChosen reports whether its addresses are those that clients choose. It has one target, without
// an address, which counts for all of them.
func (e *entry) isChosen() bool { return e.upstream == Chosen }

// addresses returns the addresses of an entry, and none if they are not known. The caller must
// not change them.
func (g *Group) addresses(e *entry) []Address {
	if e.literal != nil {
		return e.literal
	}
	return g.Names.Known(e.upstream)
}

// renew gives an entry a target for each of its addresses that are known, and forgets old ones. mu is held.
func (g *Group) renew(e *entry) []Address {
	addrs := g.addresses(e)
	if len(addrs) == 0 {
		return nil
	}
	for _, at := range addrs {
		g.target(e, at)
	}
	e.forget(addrs)
	return addrs
}

// forget forgets the targets whose addresses are not among those that the entry has now, which are known and have their
// targets. One that has sessions stays. The lock of the group is held.
func (e *entry) forget(addrs []Address) {
	if len(e.targets) > len(addrs) {
		e.targets = slices.DeleteFunc(e.targets, func(t *Target) bool {
			return t.sessions.Load() == 0 && !slices.Contains(addrs, t.address)
		})
	}
}

// target returns the target of an address, and makes it if there is none. mu is held.
func (g *Group) target(e *entry, at Address) *Target {
	if e.isChosen() && at.IsValid() {
		return &Target{group: g, entry: e, address: at, total: g.target(e, Address{})}
	}
	for _, t := range e.targets {
		if t.address == at {
			return t
		}
	}
	t := &Target{group: g, entry: e, address: at}
	e.targets = append(e.targets, t)
	return t
}

// canDial reports whether the listener can dial an address from one of its own: they are of the
// same family.
func (s *Set) canDial(at Address) bool { return s.conf.Reaches(at.Addr()) }

// targetsAt appends to all the targets of an entry at addresses that can be dialled, in their
// order. The lock of the group is held.
func (s *Set) targetsAt(all []*Target, e *entry, addrs []Address) []*Target {
	for _, at := range addrs {
		if s.canDial(at) {
			all = append(all, s.group.target(e, at))
		}
	}
	return all
}

// isService reports whether an upstream is an SRV record.
func isService(upstream string) bool { return strings.HasPrefix(upstream, policy.SRV) }

package upstream

import (
	"math"
	"slices"
	"time"

	"shaper/policy"
)

// pick chooses the target of the next session among all, which is not empty, and which it
// overwrites. It leaves out those that are not up, if one is, and chooses among the rest as
// the balance of the listener says. The lock of the group is held.
func (s *Set) pick(now time.Time, all []*Target) *Target {
	if anyUp(all) {
		all = slices.DeleteFunc(all, func(t *Target) bool { return t.state != Up })
	}
	all = mostUrgent(all)
	switch s.conf.Balance {
	case policy.LeastConnections:
		all = least(now, all, func(t *Target) int64 { return t.sessions.Load() })
	case policy.LeastInFlight:
		all = least(now, all, func(t *Target) int64 { return t.inFlight.Load() })
	case policy.InOrder, "":
		e := all[0].entry
		if !isService(e.upstream) {
			return all[0]
		}
		// The hosts of a service share the sessions by the weights of their SRV records.
		all = slices.DeleteFunc(all, func(t *Target) bool { return t.entry != e })
	}
	return inWeightedTurn(now, all)
}

func anyUp(all []*Target) bool {
	return slices.ContainsFunc(all, func(t *Target) bool { return t.state == Up })
}

// mostUrgent leaves out a host of a service if all has another host of it whose SRV record has
// a smaller priority number: RFC 2782 says to try that one first.
func mostUrgent(all []*Target) (some []*Target) {
	for _, t := range all {
		if !slices.ContainsFunc(all, func(o *Target) bool { return o.entry == t.entry && o.address.Priority < t.address.Priority }) {
			some = append(some, t)
		}
	}
	return some
}

// least returns the targets that would have the least load for their weight with one more. The
// lock of the group is held.
func least(now time.Time, all []*Target, load func(*Target) int64) (some []*Target) {
	best := math.Inf(1)
	for _, t := range all {
		switch l := float64(load(t)+1) / float64(t.weight(now)); {
		case l < best:
			best, some = l, []*Target{t}
		case l == best:
			some = append(some, t)
		}
	}
	return some
}

// inWeightedTurn returns the next target in turn. Each has its turn as often as its weight says,
// and evenly spread. It is the smooth weighted round-robin of nginx: each gains its weight, and
// the one that has gained the most gives back what all have gained. The lock of the group is
// held.
func inWeightedTurn(now time.Time, all []*Target) (next *Target) {
	total := int64(0)
	for _, t := range all {
		w := t.weight(now)
		t.turn += w
		total += w
		if next == nil || t.turn > next.turn {
			next = t
		}
	}
	next.turn -= total
	return next
}

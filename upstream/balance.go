package upstream

import (
	"math"
	"slices"
	"time"

	"shaper/policy"
)

// pick chooses one of some targets, at least one: those that are up come first, and of these
// what the balance says. The lock of the group is held.
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
		if !isService(all[0].entry.upstream) {
			return all[0]
		}
		e := all[0].entry
		all = slices.DeleteFunc(all, func(t *Target) bool { return t.entry != e })
	}
	return inWeightedTurn(now, all)
}

func anyUp(all []*Target) bool {
	return slices.ContainsFunc(all, func(t *Target) bool { return t.state == Up })
}

// mostUrgent leaves out the hosts of a service while it has others of a lower priority (RFC
// 2782).
func mostUrgent(all []*Target) (some []*Target) {
	for _, t := range all {
		if !slices.ContainsFunc(all, func(o *Target) bool { return o.entry == t.entry && o.address.Priority < t.address.Priority }) {
			some = append(some, t)
		}
	}
	return some
}

// least returns those with the least load for their weight, counting what is to come.
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

// inWeightedTurn returns each of the targets as often as its weight says, and as evenly as can
// be. It is the smooth weighted round-robin of nginx: each gains its weight, and the one that
// has gained the most gives back what all have gained.
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

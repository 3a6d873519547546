// Package limits turns the limits of a shared class into what the members of its fleet agree on. The daemon
// and the simulation use it.
package limits

import (
	"fmt"
	"time"

	"shaper/fleet"
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// algorithms says how a store hands out the budget of an algorithm with a window. The budgets of all other
// algorithms are slots.
var algorithms = map[policy.Algorithm]fleet.Algorithm{
	policy.FixedWindow: fleet.FixedWindow, policy.SlidingWindow: fleet.SlidingWindow, policy.SlidingLog: fleet.SlidingLog,
}

// All returns the limits of a shared class as its fleet knows them. Each limit is a budget of its own, and its name says what
// kind of limit it is. So two members share a budget if their limits are of the same kind, wherever these stand in their
// policies. Several limits of one kind are numbered in the order of the policy. Nothing else goes into a name: members with
// the same policy agree on it, whatever policies they had before, and a new rate does not change it.
func All(class string, limits []shaper.Limit, of policy.Fleet) (all []fleet.Class) {
	same := map[string]int{}
	for _, l := range limits {
		c := fleet.Class{
			Name: nameOf(class, &l), Algorithm: algorithms[l.Algorithm], Rate: l.Rate, Burst: l.Burst, Late: l.Late, Window: l.Window,
			Deadline: time.Duration(of.Deadline),
		}
		if same[c.Name]++; same[c.Name] > 1 {
			c.Name = numbered(&c, same[c.Name])
		}
		if l.Calendar.Period != "" {
			c.Bounds = l.Calendar.Around
		}
		all = append(all, c)
	}
	return all
}

// nameOf returns the name of the first limit of a kind. That of slots is the name of the class, whatever their burst is.
func nameOf(class string, l *shaper.Limit) string {
	switch {
	case l.Window == 0:
		return class
	case l.Calendar.Period != "":
		return fmt.Sprintf("%s/%s/%v/%s/%v/%v", class, l.Algorithm, l.Rate.Kind(), l.Calendar.Period, l.Calendar.Reset, l.Calendar.Zone)
	}
	return fmt.Sprintf("%s/%s/%v/%v", class, l.Algorithm, l.Rate.Kind(), unit.Duration(l.Window))
}

// numbered returns the name of limit number n of a kind, from 2 on. c has the name of the first.
func numbered(c *fleet.Class, n int) string {
	if c.Algorithm == fleet.Slots {
		return fmt.Sprintf("%s/slots/%d", c.Name, n)
	}
	return fmt.Sprintf("%s/%d", c.Name, n)
}

// Fallback returns what a member lets out by limit i while the store is away. A rate in the policy replaces
// that of the class, which is limit 0. By each limit of also, the member lets out its share.
func Fallback(f policy.Fallback, i int) fleet.Fallback {
	away := fleet.Fallback{Stop: f.Stop}
	if i == 0 {
		away.Rate = f.Rate
	}
	return away
}

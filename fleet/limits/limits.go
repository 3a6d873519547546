// Package limits makes what the members of a fleet agree on from a policy. The daemon and the simulation
// both do.
package limits

import (
	"fmt"
	"time"

	"shaper/fleet"
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// algorithms says in what form a store hands out the budget of an algorithm: slots, unless it has a
// window.
var algorithms = map[policy.Algorithm]fleet.Algorithm{
	policy.FixedWindow: fleet.FixedWindow, policy.SlidingWindow: fleet.SlidingWindow, policy.SlidingLog: fleet.SlidingLog,
}

// All returns the limits of a shared class as its fleet knows them. Each is a budget of its own, whose name says what kind of
// limit it is: so one that stands elsewhere in the policy of another member is the same budget, and one of another kind is
// another. Those of one kind are numbered as they stand in the policy, and by nothing else: members with one policy have to agree,
// whatever policies each has had before, and a rate that is set changes no name.
func All(class string, limits []shaper.Limit, of policy.Fleet) (all []fleet.Class) {
	same := map[string]int{}
	for _, l := range limits {
		c := fleet.Class{
			Name: nameOf(class, &l), Algorithm: algorithms[l.Algorithm], Rate: l.Rate, Burst: l.Burst, Late: l.Late, Window: l.Window,
			Deadline: time.Duration(of.Deadline),
		}
		if same[c.Name]++; same[c.Name] > 1 {
			c.Name = further(&c, same[c.Name])
		}
		if l.Calendar.Period != "" {
			c.Bounds = l.Calendar.Around
		}
		all = append(all, c)
	}
	return all
}

// nameOf returns what the first limit of a kind is called: slots have the name of the class, whatever their bursts are.
func nameOf(class string, l *shaper.Limit) string {
	switch {
	case l.Window == 0:
		return class
	case l.Calendar.Period != "":
		return fmt.Sprintf("%s/%s/%v/%s/%v/%v", class, l.Algorithm, l.Rate.Kind(), l.Calendar.Period, l.Calendar.Reset, l.Calendar.Zone)
	}
	return fmt.Sprintf("%s/%s/%v/%v", class, l.Algorithm, l.Rate.Kind(), unit.Duration(l.Window))
}

// further returns what number n of its kind is called; c has the name of the first.
func further(c *fleet.Class, n int) string {
	if c.Algorithm == fleet.Slots {
		return fmt.Sprintf("%s/slots/%d", c.Name, n)
	}
	return fmt.Sprintf("%s/%d", c.Name, n)
}

// Fallback returns what leaves by limit i while the store is away. A rate in the policy is that of
// the class itself; a further limit has its share.
func Fallback(f policy.Fallback, i int) fleet.Fallback {
	of := fleet.Fallback{Stop: f.Stop}
	if i == 0 {
		of.Rate = f.Rate
	}
	return of
}

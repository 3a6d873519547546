// Package limits makes what the members of a fleet agree on from a policy. The daemon and the simulation
// both do.
package limits

import (
	"fmt"
	"time"

	"shaper/fleet"
	"shaper/policy"
	"shaper/shaper"
)

// algorithms says in what form a store hands out the budget of an algorithm: slots, unless it has a
// window.
var algorithms = map[policy.Algorithm]fleet.Algorithm{
	policy.FixedWindow: fleet.FixedWindow, policy.SlidingWindow: fleet.SlidingWindow, policy.SlidingLog: fleet.SlidingLog,
}

// Of returns limit i of a shared class as its fleet knows it. The first limit has the name of the
// class.
func Of(class string, i int, l shaper.Limit, of policy.Fleet) fleet.Class {
	c := fleet.Class{
		Name: class, Algorithm: algorithms[l.Algorithm], Rate: l.Rate, Burst: l.Burst, Late: l.Late, Window: l.Window,
		Deadline: time.Duration(of.Deadline),
	}
	if i > 0 {
		c.Name = fmt.Sprintf("%s/%d", class, i)
	}
	if l.Calendar.Period != "" {
		c.Bounds = l.Calendar.Around
	}
	return c
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

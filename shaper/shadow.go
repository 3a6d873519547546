package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
)

// A shadow computes what a class would do that enforces nothing: it gets a copy of all
// that really leaves. Its lock is taken under that of the class.
type shadow interface {
	// offer offers a copy of what leaves at now. from is the source that waiting would hold
	// up, nil for none. asks says that it gets an answer.
	offer(now time.Time, cost Cost, from *Source, asks bool)
	// answered says that the first that was offered, and has no answer yet, has it now.
	answered(now time.Time)
	// occupy acquires a slot; nil if the session would have been refused.
	occupy() *Slot
	// isBusy reports whether copies wait at now.
	isBusy(now time.Time) bool
	// moveFlying says that n items in flight, of which there are no copies, have come with a
	// class that has got a parent; or, if n is negative, that so many have left with it and
	// get no answer here.
	moveFlying(now time.Time, n int)
	// set puts another policy in force. So many items are in flight.
	set(now time.Time, conf policy.Class, flying int)
	// leave ends the shadow. It returns what has limited the copies, which the caller may
	// use for what really leaves.
	leave(now time.Time) *gate
	// class returns the class that has the copies.
	class() *Class
}

// A caster makes the shadow of a class with its policy and limiter; it counts in counters.
type caster func(now time.Time, conf policy.Class, l limit.Limiter, counters *stats.Class) shadow

// shadowStats returns the counters of what a class would do: all buckets of one class have
// the same.
func shadowStats(c *Class) *stats.Class {
	if c.among != nil && c.among.class.shadow != nil {
		return c.among.class.shadow.class().Stats
	}
	return new(stats.Class)
}

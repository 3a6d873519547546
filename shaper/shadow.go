package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
)

// A shadow computes what a class that enforces nothing would do: it gets a copy of all
// that really leaves. The caller holds the lock of the class's tree. A shadow takes its own
// lock under that.
type shadow interface {
	// offer offers a copy of what leaves at now. from is the source that would be held up
	// while the copy waits; nil for none. asks says that the copy gets an answer.
	offer(now time.Time, cost Cost, from *Source, asks bool)
	// answered says that the oldest item without an answer has its answer at now.
	answered(now time.Time)
	// occupy acquires a permit. It returns nil if there is none, and the session is not patient:
	// it would have been refused.
	occupy(patient bool) *Permit
	// isBusy reports whether copies wait at now.
	isBusy(now time.Time) bool
	// isUsed reports whether what has left or will leave there still matters at now.
	isUsed(now time.Time) bool
	// moveInFlight says that a class has come beneath this one, with n items in flight of
	// which there are no copies. If n is negative, a class has gone with -n, and their
	// answers will not be told here.
	moveInFlight(now time.Time, n int)
	// set puts another policy in force while so many items are in flight.
	set(now time.Time, conf policy.Class, inFlight int)
	// end ends the shadow. It returns the gate that has limited the copies, for the caller
	// to use for what really leaves.
	end(now time.Time) *gate
	// class returns the class that gets the copies.
	class() *Class
}

// A shadowMaker makes the shadow of a class, with the class's policy and limiter. The
// shadow counts in counters.
type shadowMaker func(now time.Time, conf policy.Class, l limit.Limiter, counters *stats.Class) shadow

// shadowStats returns the counters for the shadow of a class. All buckets of a class share
// those of the class.
func shadowStats(c *Class) *stats.Class {
	if c.bucketOf != nil && c.bucketOf.class.shadow != nil {
		return c.bucketOf.class.shadow.class().Stats
	}
	return new(stats.Class)
}

package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
)

// Keep makes the classes keep their budgets in a ledger from now on; nil: no longer. The ledger
// gets at once what they remember. A class or bucket keeps its budget there if what has left
// matters for more than ten seconds.
func (s *Shaper) Keep(ledger Ledger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger = ledger
	if ledger != nil {
		ledger.Ask(leaseOfSecret(time.Now()), nil)
	}
	for _, c := range s.classes {
		c.backing.keepIn(time.Now(), ledger)
	}
}

// Resume makes the classes go on from what a ledger kept of them when another process ended.
// Call it before anything enters them, and before Keep. It ignores leases of classes that
// do not exist, and those that make no difference any more. If a class has another rate now,
// its budget goes on at the new one. If it has another algorithm, window, unit or `per`, it
// starts as after such a reload.
func (s *Shaper) Resume(now time.Time, leases []limit.Lease) {
	for i := range leases {
		if leases[i].Name == "" {
			policy.UseSecret(leases[i].Record)
		}
	}
	resume(now, leases, s.Class)
}

// Exhaust makes each class that would keep its budget in a ledger start as if as much had
// just left as may leave at once. Call it instead of Resume if the ledger cannot be trusted.
func (s *Shaper) Exhaust(now time.Time) {
	for _, c := range s.Classes() {
		root := c.lock()
		c.backing.exhaust(now)
		root.mu.Unlock()
	}
}

// Leases returns what the classes and their buckets remember at now, for a ledger to keep
// when the process ends. Unlike what the ledger gets from Keep on, it is exact, and complete.
func (s *Shaper) Leases(now time.Time) (all []limit.Lease) {
	all = append(all, leaseOfSecret(now))
	for _, c := range s.Classes() {
		all = append(all, c.backing.leases(now)...)
	}
	return all
}

// leaseOfSecret returns a lease of no units that holds the secret with which keys are hashed. A
// process with another secret would not find what a ledger has kept of them.
func leaseOfSecret(now time.Time) limit.Lease {
	return limit.Lease{At: now, Until: now, Expires: limit.Never, Record: policy.Secret()}
}

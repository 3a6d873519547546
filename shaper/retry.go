package shaper

import "shaper/policy"

// Repeats returns how messages of the class are sent again that the provider has refused: as
// the nearest class on the path to the root says that has a retry. The zero Retry sends none
// again. It needs no lock.
func (c *Class) Repeats() policy.Retry {
	for n := &c.node; n != nil; n = n.parent.Load() {
		if r := n.class.retry.Load(); r != 0 {
			return policy.Retry{Max: int(r >> 16), InFlight: int(r & 0xffff)}
		}
	}
	return policy.Retry{}
}

// CountRetry counts what became of a message that the provider has refused; outcome is one of
// stats.Retries.
func (c *Class) CountRetry(outcome string) { c.tally.retried(outcome) }

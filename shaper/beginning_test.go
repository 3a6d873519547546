package shaper

import (
	"slices"
	"testing"

	"shaper/limit"
	"shaper/policy"
)

// TestBeginning holds that a bucket begins idle, or as after a full burst at the time when nobody knows what has left, and that
// freshMemories says the same as fresh.
func TestBeginning(t *testing.T) {
	for _, conf := range []policy.Class{tokenClass("1 messages/s", 5), ceiling("2 messages/s", leakyClass("1 messages/s"))} {
		for _, spent := range []bool{false, true} {
			b := beginning{pace: paceOf(bucketPolicy(conf, false))}
			if spent {
				b.spentAt = start
			}
			fresh := b.fresh(at(ms))
			if holds := fresh.limiter.Next(at(ms), 0, 1).After(at(ms)); holds != spent {
				t.Errorf("%v, spent %t: an item waits: %t", conf.Algorithm, spent, holds)
			}
			var want []limit.Memory
			for _, l := range limit.Parts(fresh.limiter) {
				m, _ := l.Memory(at(ms))
				want = append(want, m)
			}
			got, within, whole := b.freshMemories(at(ms), nil)
			if !whole || !slices.Equal(got, want) || (within == nil) != (fresh.assured == nil) {
				t.Errorf("%v, spent %t: it remembers %v, want %v", conf.Algorithm, spent, got, want)
			}
			if _, other, _ := b.freshMemories(at(ms), nil); within != nil && other == within {
				t.Errorf("%v: two buckets have one assured rate", conf.Algorithm)
			}
		}
	}
	log := beginning{pace: paceOf(classBy(policy.SlidingLog, "5 messages/s")), spentAt: start}
	if _, _, whole := log.freshMemories(at(ms), nil); whole {
		t.Error("a log of departures fits into what is remembered")
	}
}

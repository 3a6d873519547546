package shaper

import (
	"time"

	"shaper/leaky"
	"shaper/limit"
)

// bucketState is what a bucket starts with, and what remains of it when nobody uses it.
type bucketState struct {
	limiter limit.Limiter
	assured *leaky.Assured // nil: everything that the limiter allows is assured
}

// A beginning says how a bucket begins that a key gets of which nothing is remembered. All buckets of a class have the same.
// The lock of the tree guards it.
type beginning struct {
	pace    pace        // of the bucket
	spentAt time.Time   // the bucket begins as if it had let out a full burst at this time; zero: nothing
	blank   bucketState // what freshMemories has computed since spend; no limiter: nothing
}

// spend makes buckets begin as if they had let out a full burst at a time. Nobody knows what has left of their keys before.
func (b *beginning) spend(at time.Time) { b.spentAt, b.blank = at, bucketState{} }

// fresh returns the state of a bucket that gets a new limiter.
func (b *beginning) fresh(now time.Time) bucketState {
	if b.spentAt.IsZero() {
		return bucketState{b.pace.idle(now), b.pace.assure(now, nil)}
	}
	return bucketState{b.pace.spent(b.spentAt), b.pace.assure(b.spentAt, nil)}
}

// freshMemories is fresh for a bucket that keeps the limiter it has. It appends to memories what each part of that limiter has to
// remember. If whole is false, a memory cannot say all of it, and the bucket needs a new limiter.
func (b *beginning) freshMemories(now time.Time, memories []limit.Memory) (all []limit.Memory, assured *leaky.Assured, whole bool) {
	if b.blank.limiter == nil || b.pace.borrows { // each bucket that borrows has an Assured of its own
		b.blank = b.fresh(now)
	}
	for _, l := range limit.Parts(b.blank.limiter) {
		m, whole := l.Memory(now)
		if !whole {
			return memories, nil, false
		}
		memories = append(memories, m)
	}
	return memories, b.blank.assured, true
}

// restore returns the state of a bucket whose key is remembered, from what was kept of it. p is the pace that the bucket had.
func restore(now time.Time, kept keptState, p *pace) bucketState {
	state := bucketState{limiter: kept.limiter, assured: p.assure(kept.assured, nil)}
	if state.limiter == nil {
		state.limiter = p.idle(now)
		for i, l := range limit.Parts(state.limiter) {
			l.Remember(kept.memories[i])
		}
	}
	return state
}

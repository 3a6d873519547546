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

// A beginning is how the bucket of a key begins that is not remembered. The lock of the tree guards it.
type beginning struct {
	pace    pace        // of the bucket
	spentAt time.Time   // the bucket begins as if it had let out a full burst at this time; zero: nothing
	blank   bucketState // what remembered has computed; no limiter: nothing
}

// spend makes buckets begin as if they had let out a full burst at a time: nobody knows what has left of their keys until then.
func (b *beginning) spend(at time.Time) { b.spentAt, b.blank = at, bucketState{} }

// fresh returns the state for a new bucket.
func (b *beginning) fresh(now time.Time) bucketState {
	if b.spentAt.IsZero() {
		return bucketState{b.pace.idle(now), b.pace.assure(now, nil)}
	}
	return bucketState{b.pace.spent(b.spentAt), b.pace.assure(b.spentAt, nil)}
}

// remembered is fresh for a bucket that has a limiter. It appends what each part of that is to remember to memories. Unless whole
// is true, that is not all, and the bucket cannot begin so.
func (b *beginning) remembered(now time.Time, memories []limit.Memory) (all []limit.Memory, assured *leaky.Assured, whole bool) {
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

// restore returns the state of a bucket from what was kept of it, at the pace that it had.
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

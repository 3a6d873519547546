package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
)

// common is the bucket of the keys for which a class has no room, and who is in it. The lock of the tree
// guards it.
type common struct {
	bucket  *Class             // nil: there was room for all keys
	keys    map[policy.Key]int // how many messages of each key are in the bucket; made with it
	visited visitors           // the keys that have been in the bucket since it owed nothing last
}

// join notes that a message of a key has joined the bucket.
func (c *common) join(key policy.Key) { c.keys[key]++ }

// quit ends what join began. It does nothing for a key that has not joined.
func (c *common) quit(key policy.Key) {
	if n := c.keys[key]; n > 1 {
		c.keys[key] = n - 1
	} else {
		delete(c.keys, key)
	}
}

// has reports whether a message of a key is in the bucket.
func (c *common) has(key policy.Key) bool { return c.keys[key] > 0 }

// follows reports whether a key that is not remembered goes on from the common bucket: the key
// has been there, and that owes something. It would have its limit twice if it began anew.
func (c *common) follows(now time.Time, key policy.Key) bool {
	b := c.bucket
	if !c.visited.has(key) || b.shadow != nil { // a shadow lets keys leave as new ones
		return false
	}
	if m, _ := b.limiter.Memory(now); b.isThrottled(now) || m.Until.After(now) {
		return true
	}
	if b.joined.Load() == 0 && b.waiting == 0 {
		c.visited.clear()
	}
	return false
}

// handsOver returns what a key goes on from that leaves the bucket, at a pace: what a record has of the bucket. If no record
// holds such numbers, the key begins as if all that may leave at once had just left.
func (c *common) handsOver(now time.Time, p *pace) bucketState {
	b := c.bucket
	r := recordOf(now, b.limiter, &b.pace, b.pacedRate(), b.bucketOf.per)
	state := bucketState{assured: b.assured}
	if l := r.limiter(now, &limit.Lease{At: now, Until: now}); l != nil {
		state.limiter = p.takeOver(now, l, &r.pace, r.rate)
	} else {
		state.limiter = p.spent(now)
	}
	if h := limit.HintsOf(bare(b.limiter)); h != nil { // no record has them
		*limit.HintsOf(state.limiter) = *h.Clone().(*limit.Hints)
	}
	return state
}

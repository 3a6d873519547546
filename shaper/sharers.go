package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
)

// noteJoin notes that a session, or a message, of a key has joined a bucket.
func (k *keys) noteJoin(c *Class, key policy.Key) {
	if c == k.shared && k.byMessage { // nobody knows of which key a session is that quits
		k.sharers[key]++
	}
}

// noteQuit notes that what noteJoin has noted has quit the bucket.
func (k *keys) noteQuit(c *Class, key policy.Key) {
	if c != k.shared {
		return
	}
	if n := k.sharers[key]; n > 1 {
		k.sharers[key] = n - 1
	} else {
		delete(k.sharers, key)
	}
}

// followsShared reports whether a key that is not remembered goes on from the shared bucket: the key
// has been there, and that owes something. It would have its limit twice if it began anew.
func (k *keys) followsShared(now time.Time, key policy.Key) bool {
	c := k.shared
	if !k.visited.has(key) || c.shadow != nil { // a shadow lets keys leave as new ones
		return false
	}
	if m, _ := c.limiter.Memory(now); c.isThrottled(now) || m.Until.After(now) {
		return true
	}
	if c.joined.Load() == 0 && c.waiting == 0 {
		k.visited.clear()
	}
	return false
}

// outOfShared remembers of a key what a record has of the shared bucket, and returns the entry; 0 if that is nothing. If no record
// holds such numbers, the key begins as if all that may leave at once had just left.
func (k *keys) outOfShared(now time.Time, key policy.Key) (entry int32) {
	c := k.shared
	r := recordOf(now, c.limiter, &c.pace, c.pacedRate(), k.class.conf.Per)
	state := bucketState{assured: c.assured}
	if l := r.limiter(now, &limit.Lease{At: now, Until: now}); l != nil {
		state.limiter = k.pace.takeOver(now, l, &r.pace, r.rate)
	} else {
		state.limiter = k.pace.spent(now)
	}
	if h := limit.HintsOf(bare(c.limiter)); h != nil { // no record has them
		*limit.HintsOf(state.limiter) = *h.Clone().(*limit.Hints)
	}
	k.idle.remember(now, key, state)
	return k.idle.find(key)
}

package shaper

import (
	"sync/atomic"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
)

// keys are the buckets of a class that has one for each client, or whatever its
// policy tells apart: children of it, each with all the limits of the class, of
// which it has none itself. They compete as equals for what is above them.
//
// A key has a child while a session has joined it. What the others have to
// remember is little; it is forgotten when nobody can tell. So there are as many
// as max_keys at most, and no flood of new ones frees one that is over its limit:
// those for which there is no room share a bucket.
type keys struct {
	class  *Class
	since  time.Time // as much as may leave at once left then from each that is new; zero: nothing did
	active map[policy.Key]*Class
	idle   idleKeys
	shared *Class   // of all for whom there is no room, from the first of them on
	linger []*Class // nobody uses them, and copies of what they let out wait in their shadow
}

// membership is what only one of keys has.
type membership struct {
	among   *keys       // those of its parent; nil: it is a class of the policy
	key     policy.Key  // which one
	joined  int         // sessions that have joined it
	lingers bool        // it is among keys.linger
	parting atomic.Bool // it is given up when its last item has left; without the lock, too
}

func newKeys(now time.Time, class *Class) *keys {
	return &keys{class: class, active: map[policy.Key]*Class{}, idle: newIdleKeys(now)}
}

// Join returns the class that a session's items enter: c itself, or where that has
// a bucket per key, the one of the session's. The session is in it until Quit.
func (c *Class) Join(now time.Time, conn policy.Conn) *Class {
	if c == nil || c.keys == nil {
		return c
	}
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	bucket := c.keys.bucket(now, c.conf.Per.Key(conn))
	bucket.joined++
	bucket.parting.Store(false)
	return bucket
}

// Quit ends what Join began. What the session had in the class has left, or has
// been taken out.
func (c *Class) Quit(now time.Time) {
	if c == nil || c.among == nil {
		return
	}
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.joined--
	retire(now, c)
}

// Keys returns how many keys have a bucket of their own, or are remembered at now;
// 0 where the class has one for all.
func (c *Class) Keys(now time.Time) int {
	if c.keys == nil {
		return 0
	}
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.keys.forget(now, 1000)
	return c.keys.len()
}

// Named returns the class of the policy that the class stands for: itself, unless
// it is a bucket of one.
func (c *Class) Named() *Class {
	if c == nil || c.among == nil {
		return c
	}
	return c.among.class
}

func (k *keys) len() int { return len(k.active) + k.idle.Len() }

// bucket returns the bucket of a key.
func (k *keys) bucket(now time.Time, key policy.Key) *Class {
	if c := k.active[key]; c != nil {
		return c
	}
	k.forget(now, 2) // more than can have come since the last
	left, known := k.idle.take(key)
	if !known && k.len() >= k.most() {
		k.class.Stats.KeysShared.Add(1)
		if k.shared == nil {
			k.shared = k.open(now, k.fresh(now))
		}
		return k.shared
	}
	state := k.fresh(now)
	if known {
		state = remembered(now, left, k.pace())
	}
	c := k.open(now, state)
	c.key = key
	k.active[key] = c
	return c
}

// forget gives up keys that need not be remembered at now, so many at most.
func (k *keys) forget(now time.Time, most int) {
	k.idle.forget(now, most)
	for range min(most, len(k.linger)) {
		c := k.linger[0]
		k.linger, c.lingers = k.linger[1:], false
		retire(now, c)
	}
}

func (k *keys) most() int {
	if k.class.conf.MaxKeys == 0 {
		return policy.DefaultClass("").MaxKeys
	}
	return k.class.conf.MaxKeys
}

// open returns a new bucket.
func (k *keys) open(now time.Time, state bucketState) *Class {
	conf := bucketPolicy(k.class.conf)
	c := newClass(conf, k.class.tally, k.class.casts)
	c.waker, c.among = k.class.waker, k
	c.assured = state.assured
	c.install(now, conf, state.limiter)
	attach(now, c, k.class)
	return c
}

// pace returns the pace of each bucket.
func (k *keys) pace() pace { return paceOf(bucketPolicy(k.class.conf)) }

// bucketPolicy returns the policy of each bucket of a class.
func bucketPolicy(conf policy.Class) policy.Class {
	conf.Parent, conf.Per, conf.Weight = conf.Name, policy.Per{}, 1
	return conf
}

// retire gives up a bucket that nobody uses any more. While an item is on its way
// out, which those above wait for, it stays: Left is to come. The one that is shared
// stays for good, for it is not remembered of whom it is over the limit.
func retire(now time.Time, c *Class) {
	if c.among != nil && c.parent.Load() != nil && c.joined == 0 && c.queue.Len() == 0 {
		c.among.retire(now, c) // no parent: it has been given up already
	}
}

// retire gives up a bucket that nobody uses, unless something keeps it.
func (k *keys) retire(now time.Time, c *Class) {
	if c == k.shared {
		return
	}
	if c.parting.Store(c.awaitsLeft()); c.parting.Load() || c.lingers || k.keeps(now, c) {
		return
	}
	c.mu.Lock() // it becomes a root, which others may use
	defer c.mu.Unlock()
	detach(now, c)
	delete(k.active, c.key)
	if k.comeAgain() {
		k.idle.put(now, c.key, bucketState{c.enforced(now).limiter, c.assured})
	}
	// What comes all the same, to a session that ends or moves at this moment, waits.
	c.limiter, c.shadow, c.conf.MaxWait = blocked{}, nil, 0
}

// comeAgain reports whether a key may come again that nobody uses.
func (k *keys) comeAgain() bool { return k.class.conf.Per.By != policy.ByConnection }

// keeps makes a bucket linger while copies of what it let out wait in its shadow, and
// while a provider that said "too fast" slows it down.
func (k *keys) keeps(now time.Time, c *Class) bool {
	c.lingers = c.shadow != nil && c.shadow.isBusy(now) || k.comeAgain() && c.isThrottled(now)
	if c.lingers {
		k.linger = append(k.linger, c)
	}
	return c.lingers
}

// set puts a policy in force for all buckets, in the place of another.
func (k *keys) set(now time.Time, old, next policy.Class) {
	old, next = bucketPolicy(old), bucketPolicy(next)
	if old == next {
		return // as by most reloads: there may be many
	}
	k.each(func(c *Class) {
		c.put(now, next)
		c.update(now)
	})
	had, pace := paceOf(old), paceOf(next)
	if had == pace {
		return
	}
	k.idle.change(now, func(left remains) bucketState {
		state := remembered(now, left, had)
		state.limiter = pace.takeOver(now, state.limiter, &had, had.rate)
		state.assured = pace.assure(now, state.assured)
		return state
	})
}

// bucketState is what of a bucket outlasts its use.
type bucketState struct {
	limiter limit.Limiter
	assured *leaky.Assured // nil: all that the limiter allows is assured
}

// fresh returns the state of a bucket that nothing is known of.
func (k *keys) fresh(now time.Time) bucketState {
	p := k.pace()
	if k.since.IsZero() {
		return bucketState{p.idle(now), p.assure(now, nil)}
	}
	return bucketState{p.spent(k.since, 0), p.assure(k.since, nil)}
}

// remembered returns the state of a bucket that was idle, at the pace that it had.
func remembered(now time.Time, left remains, p pace) bucketState {
	state := bucketState{limiter: left.limiter, assured: p.assure(left.assured, nil)}
	if state.limiter == nil {
		state.limiter = p.idle(now)
		state.limiter.Remember(left.memory)
	}
	return state
}

// each calls do with a class, and with each of its buckets.
func each(c *Class, do func(*Class)) {
	do(c)
	if c.keys != nil {
		c.keys.each(do)
	}
}

// each calls do with each bucket that is in use.
func (k *keys) each(do func(*Class)) {
	for _, c := range k.active {
		do(c)
	}
	if k.shared != nil {
		do(k.shared)
	}
}

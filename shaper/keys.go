package shaper

import (
	"sync/atomic"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
)

// keys are the buckets of a class that has one for each client, or for whatever its
// policy tells apart: children of the class, each with all the limits of the class, which
// limits nothing itself. They compete as equals for what is above them.
//
// A key has a bucket while a session has joined it. Of an idle key little has to be
// remembered, and that is forgotten when it makes no difference any more. There are
// max_keys keys at most. A flood of new ones never frees one that is over its limit:
// those for which there is no room share a bucket.
//
// The lock of the tree guards all of it.
type keys struct {
	class  *Class
	conf   policy.Class // of each bucket
	pace   pace         // likewise
	since  time.Time    // when a new bucket has let out as much as may leave at once; zero: never
	active map[policy.Key]*Class
	idle   idleKeys
	shared *Class   // the bucket of those for whom there is no room; nil: there was room for all
	linger []*Class // buckets that nobody uses, and that something keeps; see keeps
}

// membership is what a bucket has, and no other class.
type membership struct {
	among   *keys       // it is one of these; nil: it is a class of the policy
	parting atomic.Bool // it is given up when its last item has left; read without a lock

	// Under the lock of the tree.
	key     policy.Key
	joined  int  // sessions that have joined it
	lingers bool // it is among keys.linger
}

// newKeys returns the buckets of a class that gets the policy conf.
func newKeys(now time.Time, class *Class, conf policy.Class) *keys {
	k := &keys{class: class, conf: bucketPolicy(conf), active: map[policy.Key]*Class{}, idle: newIdleKeys(now)}
	k.pace = paceOf(k.conf)
	return k
}

// Join returns the class that the items of a session enter: c itself, or the bucket for
// the key of the session if c has buckets. The session is in it until Quit.
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

// Quit ends what Join began. The caller has taken out what still waits.
func (c *Class) Quit(now time.Time) {
	if c == nil || c.among == nil {
		return
	}
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.joined--
	retire(now, c)
}

// Keys returns how many keys have a bucket of their own, or are remembered at now; 0 if
// the class has one bucket for all.
func (c *Class) Keys(now time.Time) int {
	if c.keys == nil {
		return 0
	}
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.keys.forget(now, 1000)
	return c.keys.len()
}

// Named returns the class that the policy names: the class whose bucket this is, or the
// class itself.
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
	k.forget(now, 2) // more than have come since the last call
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
		state = remembered(now, left, &k.pace)
	}
	c := k.open(now, state)
	c.key = key
	k.active[key] = c
	return c
}

// forget gives up keys that need not be remembered at now, and so many at most.
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
	c := newClass(k.conf, k.class.tally, k.class.casts)
	c.waker, c.among = k.class.waker, k
	c.assured = state.assured
	c.install(now, k.conf, &k.pace, state.limiter)
	attach(now, c, k.class)
	return c
}

// bucketPolicy returns the policy of each bucket of a class.
func bucketPolicy(conf policy.Class) policy.Class {
	conf.Parent, conf.Per, conf.Weight = conf.Name, policy.Per{}, 1
	return conf
}

// retire gives up a class that is a bucket and that nobody uses any more.
func retire(now time.Time, c *Class) {
	if c.among != nil && c.parent.Load() != nil && c.joined == 0 && c.queue.Len() == 0 {
		c.among.retire(now, c) // no parent: it has been given up already
	}
}

// retire gives up a bucket that nobody uses. It stays while an item of it is on its way
// out that a class above waits for, since Left is to come. The shared bucket stays for
// good: nobody remembers which of its clients owes what.
func (k *keys) retire(now time.Time, c *Class) {
	if c == k.shared {
		return
	}
	if c.parting.Store(c.awaitsLeft()); c.parting.Load() || c.lingers || k.keeps(now, c) {
		return
	}
	c.mu.Lock() // it becomes a root, and others may lock it
	defer c.mu.Unlock()
	detach(now, c)
	delete(k.active, c.key)
	if k.comeAgain() {
		k.idle.put(now, c.key, bucketState{c.enforced(now).limiter, c.assured})
	}
	// What still comes, from a session that ends or moves at this moment, waits.
	c.limiter, c.shadow, c.conf.MaxWait = blocked{}, nil, 0
}

// comeAgain reports whether a key that nobody uses may come again.
func (k *keys) comeAgain() bool { return k.class.conf.Per.By != policy.ByConnection }

// keeps makes a bucket linger while copies wait in its shadow, and while it is slowed
// down since its provider has said "too fast".
func (k *keys) keeps(now time.Time, c *Class) bool {
	c.lingers = c.shadow != nil && c.shadow.isBusy(now) || k.comeAgain() && c.isThrottled(now)
	if c.lingers {
		k.linger = append(k.linger, c)
	}
	return c.lingers
}

// set puts another policy of the class in force for all buckets.
func (k *keys) set(now time.Time, conf policy.Class) {
	conf = bucketPolicy(conf)
	if conf == k.conf {
		return // as in most reloads; there may be many buckets
	}
	had := k.pace
	k.conf, k.pace = conf, paceOf(conf)
	k.each(func(c *Class) {
		c.put(now, k.conf, &k.pace)
		c.update(now)
	})
	if had == k.pace {
		return
	}
	k.idle.change(now, func(left remains) bucketState {
		state := remembered(now, left, &had)
		state.limiter = k.pace.takeOver(now, state.limiter, &had, had.rate)
		state.assured = k.pace.assure(now, state.assured)
		return state
	})
}

// bucketState is what remains of a bucket that nobody uses.
type bucketState struct {
	limiter limit.Limiter
	assured *leaky.Assured // nil: all that the limiter allows is assured
}

// fresh returns the state of the bucket of a key that is not known.
func (k *keys) fresh(now time.Time) bucketState {
	p := &k.pace
	if k.since.IsZero() {
		return bucketState{p.idle(now), p.assure(now, nil)}
	}
	return bucketState{p.spent(k.since, 0), p.assure(k.since, nil)}
}

// remembered returns the state of a bucket that was idle, at the pace that it had.
func remembered(now time.Time, left remains, p *pace) bucketState {
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

package shaper

import (
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
)

// keys holds the buckets of a class with `per`: one for each client, or for whatever the
// policy tells apart. Buckets are children of the class. Each has all the limits of the
// class, and the class itself limits nothing. They compete as equals for what is above.
//
// A key has a bucket while a session has joined it. Afterwards the class remembers a
// little of it, and forgets that when it makes no difference any more. There are at most
// max_keys keys. When there is no room for another one, new keys use a common bucket, and what
// that owes goes with those that leave it. So a flood of new keys never frees a key that is
// over its limit. A key whose messages join buckets stays in the common one while a message of
// it is there: with a bucket of its own beside that, it would have its limit twice.
//
// A class beneath one with buckets has the same keys, and a bucket for each beneath that of the class above: see
// keys.above. What is remembered of a key, and when it is forgotten, is a matter of each class.
//
// If messages tell the buckets apart, a bucket may serve one message only. So some that
// nobody uses are kept for other keys.
//
// The lock of the tree guards keys.
type keys struct {
	per       policy.Per // never changes, so that anybody may read it
	perKind              // what follows from it
	secret    *[32]byte  // what keys are hashed with; nil: as in all of the process. It never changes
	class     *Class
	above     *keys        // of the parent, whose buckets are the parents of these; nil: the class is their parent. It is set when the class comes beneath its parent, and never changes
	conf      policy.Class // of each bucket
	beginning              // of each bucket
	table     keyTable
	common    common             // the bucket of keys for which there is no room
	waiting   leaky.Queue[Class] // buckets in which something waits; the one in which something has waited without a break for longest is the first
	queueCost int64              // of all items in the queues of buckets and of their groups, in the unit of the class
	linger    []*Class           // buckets, here and in the classes beneath, that nobody uses and that must stay for a while; see letLinger
	spare     []*Class           // buckets without a key, for other keys
	silence   *silence           // of the ledger, towards all buckets
}

// A perKind is what follows from a policy.Per, and is asked for each message.
type perKind struct {
	byMessage bool // messages tell the buckets apart
	mayReturn bool // a key that nobody uses may come again: that of a connection never does, unless each message has one
	outlives  bool // a key means the same in another process: that of a connection does not, since each process counts its own
}

func perKindOf(per policy.Per) perKind {
	byMessage, byConnection := per.ByMessage(), per.Has(policy.ByConnection)
	return perKind{byMessage: byMessage, mayReturn: byMessage || !byConnection, outlives: !byConnection}
}

// defaultKeys is the max_keys of a class without one.
var defaultKeys = policy.DefaultClass("").MaxKeys

// maxSpare bounds the spare buckets of a class. Each takes some 2.5 KiB.
const maxSpare = 64

// bucketOnly is what only a bucket has.
type bucketOnly struct {
	bucketOf *keys       // set when the class is made; nil: it is a class of the policy
	retiring atomic.Bool // it is given up when its last item has left; read without a lock

	// Guarded by the lock of the tree.
	key     policy.Key
	entry   int32                // of the key, in keys.table
	lingers bool                 // it is in keys.linger
	isSpare bool                 // it is in keys.spare
	waits   bool                 // it is in keys.waiting
	place   leaky.Element[Class] // its place there
}

// newKeys returns the keys of a class that gets the policy conf.
func newKeys(now time.Time, class *Class, conf policy.Class) *keys {
	k := &keys{per: conf.Per, perKind: perKindOf(conf.Per), class: class, conf: bucketPolicy(conf, false), silence: new(silence)}
	k.pace = paceOf(k.conf)
	k.table = newKeyTable(now, 1+k.pace.further())
	return k
}

// Join returns the class that the items of a session enter: c itself, or the bucket for
// the key of the session if c has buckets. The session is in it until Quit. If messages
// tell the buckets apart, Join returns c, and each message joins the bucket of its key.
func (c *Class) Join(now time.Time, conn policy.Conn) *Class {
	switch {
	case c == nil:
		return nil
	case c.keys == nil, c.Messages().HaveKeys():
		c.joined.Add(1)
		return c
	}
	return c.JoinKey(now, Key{bucket: c.keys.keyOf(&conn, nil)})
}

// JoinKey is Join for a key of a class that has buckets or groups. Quit it with QuitKey.
func (c *Class) JoinKey(now time.Time, key Key) *Class {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	bucket := c
	if c.keys != nil {
		bucket = c.keys.bucket(now, key.bucket)
	}
	if bucket.bucketOf != nil {
		bucket.bucketOf.join(bucket, key.bucket)
	} else {
		bucket.joined.Add(1)
	}
	if key.group == 0 {
		return bucket
	}
	return bucket.quiet.group(now, key.group)
}

// Quit ends what Join began. The caller has taken out all that waited.
func (c *Class) Quit(now time.Time) { c.QuitKey(now, Key{}) }

// QuitKey ends what JoinKey began with a key. The caller has taken out all that waited, and what has left
// has its answer.
func (c *Class) QuitKey(now time.Time, key Key) {
	if c == nil {
		return
	}
	if c = c.owner; c.bucketOf == nil {
		c.joined.Add(-1)
		return
	}
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.bucketOf.quit(now, c, key.bucket)
}

// join notes that a session, a message or a bucket beneath it has joined the bucket for its key.
func (k *keys) join(c *Class, key policy.Key) {
	c.joined.Add(1)
	c.retiring.Store(false)
	if c != k.common.bucket {
		return
	}
	if k.byMessage { // of a session, nobody knows the key when it quits
		k.common.join(key)
	}
	if k.above != nil { // the common bucket is beneath that of the class above, for each of its keys
		k.above.join(k.above.common.bucket, key)
	}
}

// quit ends what join began.
func (k *keys) quit(now time.Time, c *Class, key policy.Key) {
	c.joined.Add(-1)
	if c == k.common.bucket {
		k.common.quit(key)
		if k.above != nil {
			k.above.quit(now, k.above.common.bucket, key)
		}
	}
	retireIfUnused(now, c)
}

// bucket returns the bucket of a key, and opens it if there is none.
func (k *keys) bucket(now time.Time, key policy.Key) *Class {
	k.forget(now, 2) // more than can have come since the last call
	i := k.table.find(key)
	if c := k.table.bucketOf(i); c != nil {
		return c
	}
	if k.common.has(key) || i == 0 && !k.hasRoom(now) {
		return k.visit(now, key)
	}
	follows := i == 0 && k.common.follows(now, key)
	if follows {
		k.table.remember(now, key, k.common.handsOver(now, &k.pace))
		i = k.table.find(key) // 0 if the key owes nothing
	}
	kept, known := keptState{}, i != 0
	if known {
		kept = k.table.kept(k.table.entry(i))
	} else {
		i = k.table.add(key)
	}
	c := k.reuse(now, key, kept, known)
	if c == nil {
		state := k.fresh(now)
		if known {
			state = restore(now, kept, &k.pace)
		}
		parent := k.class
		if k.above != nil {
			parent = k.above.bucket(now, key)
			k.above.join(parent, key)
		}
		c = k.open(now, key, state, parent)
	}
	if follows {
		c.throttleAs(now, &k.common.bucket.regulator)
		c.update(now)
	}
	k.table.use(c, i)
	return c
}

// visit returns the common bucket, and notes that a key goes there. It opens the bucket if there is none, beneath the common bucket of
// the class above, whatever bucket the key has there.
func (k *keys) visit(now time.Time, key policy.Key) *Class {
	parent := k.class
	if k.above != nil {
		parent = k.above.visit(now, key)
	}
	k.class.Stats.KeysShared.Add(1)
	if k.common.bucket == nil {
		k.common.bucket, k.common.keys = k.open(now, policy.Key{}, k.fresh(now), parent), map[policy.Key]int{}
	}
	if _, outside := k.common.bucket.limiter.(*shared); k.mayReturn && !outside { // a fleet has its own account of each key
		k.common.visited.add(key)
	}
	return k.common.bucket
}

// reuse returns a spare bucket that goes on from what was kept of a key, if that is known;
// nil if there is none, or if it could not go on from that.
func (k *keys) reuse(now time.Time, key policy.Key, kept keptState, known bool) *Class {
	last := len(k.spare) - 1
	if last < 0 || kept.limiter != nil {
		return nil
	}
	state := bucketState{assured: k.pace.assure(kept.assured, nil)}
	if !known {
		var whole bool
		kept.memories, state.assured, whole = k.freshMemories(now, k.table.memories[:0])
		if k.table.memories = kept.memories[:0]; !whole {
			return nil
		}
	}
	c := k.spare[last]
	k.spare, c.isSpare, c.key = k.spare[:last], false, key
	for i, l := range limit.Parts(bare(c.limiter)) {
		l.Remember(kept.memories[i])
	}
	k.class.backing.standBehind(c)
	c.use(c.backing.limiter(now, &c.pace, c.limiter)) // the leases were of another key
	c.assured, c.throttle, c.payer = state.assured, throttle{}, nil
	return c
}

// hasRoom reports whether there is room for another key. If not, it looks for a key that may be forgotten. The first reviews
// may be of keys that have been used since, so it looks at as many as a class has keys by default: that takes
// some 10 ms at most, and happens once after a time in which nothing came.
func (k *keys) hasRoom(now time.Time) bool {
	if k.table.len() >= k.maxKeys() { // while a change is under way, only keys in which it is made may be forgotten
		k.table.goOn(keysAtOnce)
	}
	for looks, more := 0, true; k.table.len() >= k.maxKeys() && more && looks < defaultKeys; looks++ {
		more = k.table.forget(now, 1)
	}
	return k.table.len() < k.maxKeys()
}

// forget forgets keys that need not be remembered at now. It looks at so many at most, and reports whether there
// may be more. It tries to give up as many buckets that linger.
func (k *keys) forget(now time.Time, most int) (more bool) {
	more = k.table.forget(now, most)
	top := k.top()
	for range min(most, len(top.linger)) {
		c := top.linger[0]
		top.linger, c.lingers = top.linger[1:], false
		retireIfUnused(now, c)
	}
	return more
}

// maxKeys returns how many keys there may be.
func (k *keys) maxKeys() int {
	if k.class.conf.MaxKeys == 0 {
		return defaultKeys
	}
	return k.class.conf.MaxKeys
}

// open adds a new bucket to the class, for a key, beneath a parent.
func (k *keys) open(now time.Time, key policy.Key, state bucketState, parent *Class) *Class {
	c := newClass(k.conf, k.class.tally, k.class.makeShadow)
	c.waker, c.bucketOf, c.key, c.quiet = k.class.waker, k, key, newQuiet(c, k.conf)
	k.class.backing.standBehind(c)
	c.assured = state.assured
	c.install(now, k.conf, &k.pace, state.limiter)
	attach(now, c, parent)
	return c
}

// bucketPolicy returns the policy of each bucket of a class. They compete as equals, unless they are beneath the buckets of the
// class above: there they compete with those of other classes.
func bucketPolicy(conf policy.Class, beneath bool) policy.Class {
	conf.Parent, conf.Per = conf.Name, policy.Per{}
	if !beneath {
		conf.Weight = 1
	}
	return conf
}

// standOtherwise reports whether the buckets of a class would have other parents if the class had another one. If so, it
// cannot move: it has to be replaced. It is false if k is nil: the class has no buckets.
func (k *keys) standOtherwise(parent *Class) bool {
	if k == nil || k.class.Parent() == parent {
		return false
	}
	return !k.mayMove() || parent != nil && parent.keys != nil
}

// retireIfUnused gives up a class if it is a bucket that nobody uses any more, or the group of one.
func retireIfUnused(now time.Time, c *Class) {
	c = c.owner
	if c.bucketOf != nil && c.parent.Load() != nil && !c.isSpare && c.joined.Load() == 0 && c.waiting == 0 {
		c.bucketOf.retire(now, c) // without a parent it has been given up already
	}
}

// retire gives up a bucket that nobody uses. The bucket stays while a class above waits for
// an item of it that is on its way out, since Left is still to come. The common bucket
// stays for ever: nobody remembers which of its keys owes what.
func (k *keys) retire(now time.Time, c *Class) {
	if c == k.common.bucket {
		return
	}
	if c.retiring.Store(c.isAwaited()); c.retiring.Load() || c.lingers || k.letLinger(now, c) {
		return
	}
	if l, ok := c.limiter.(*leased); ok && l.owes() {
		c.backing.note(now)
	}
	parent := c.Parent()
	k.table.disuse(c)
	forget(c.limiter)
	switch {
	case !k.mayReturn:
		k.close(now, c)
		k.table.remove(c.entry)
	case !k.isReusable(c):
		k.table.put(now, c.entry, k.close(now, c))
	case k.table.put(now, c.entry, bucketState{bare(c.limiter), c.assured}):
		k.spare, c.isSpare = append(k.spare, c), true
	default: // the key keeps the limiter
		k.close(now, c)
	}
	if k.above != nil {
		k.above.quit(now, parent, c.key)
	}
}

// isReusable reports whether a bucket that nobody uses is to be kept for another key. One beneath a bucket would have another
// parent then.
func (k *keys) isReusable(c *Class) bool {
	return k.byMessage && k.above == nil && c.shadow == nil && len(k.spare) < maxSpare
}

// close takes a bucket out of the class, and returns what remains of it. Something may still
// come, from a session that ends or moves just now: it waits.
func (k *keys) close(now time.Time, c *Class) bucketState {
	c.mu.Lock() // it becomes a root, whose mu others may lock
	defer c.mu.Unlock()
	above := c.parent.Load()
	detach(now, c)
	for ; above != nil; above = above.parent.Load() {
		above.stopAwaiting(now, &c.node)
	}
	state := bucketState{bare(c.endShadow(now).limiter), c.assured}
	c.use(blocked{}) // also for items on their way out: what remains has another lock
	c.shadow, c.conf.MaxWait = nil, 0
	return state
}

// letLinger makes a bucket stay while copies wait in its shadow, or while it is throttled
// and its key may come again. It reports whether the bucket stays. So do those above it, so whoever needs room
// there gives it up: the topmost keys know of all.
func (k *keys) letLinger(now time.Time, c *Class) bool {
	c.lingers = c.shadow != nil && c.shadow.isBusy(now) || k.mayReturn && c.isThrottled(now)
	if c.lingers {
		top := k.top()
		top.linger = append(top.linger, c)
	}
	return c.lingers
}

// set puts the policy of the class in force for all buckets.
func (k *keys) set(now time.Time, conf policy.Class) {
	conf = bucketPolicy(conf, k.above != nil)
	if conf.Equal(k.conf) {
		return // as in most reloads; there may be many buckets
	}
	old := k.pace
	k.conf, k.pace, k.blank = conf, paceOf(conf), bucketState{}
	if slices.Contains(k.pace.origins(&old), -1) {
		k.spend(now) // a limit is new, and nobody knows what has left of keys that are forgotten
	}
	for _, c := range k.spare {
		k.close(now, c)
	}
	k.spare = nil
	k.each(func(c *Class) {
		c.put(now, k.conf, &k.pace)
		c.quiet.set(now)
		c.update(now)
	})
	if reflect.DeepEqual(old, k.pace) {
		return
	}
	next := k.pace // the one of this change, whatever follows
	k.table.begin(now, 1+next.further(), func(kept keptState) bucketState {
		state := restore(now, kept, &old)
		state.limiter = next.takeOver(now, state.limiter, &old, old.rate)
		state.assured = next.assure(now, state.assured)
		return state
	})
}

// each calls do with each bucket that is in use. do may give up the bucket that it gets: the last one takes its place,
// so the last one comes first.
func (k *keys) each(do func(*Class)) {
	for _, c := range slices.Backward(k.table.active) {
		do(c)
	}
	if k.common.bucket != nil {
		do(k.common.bucket)
	}
}

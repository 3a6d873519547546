package shaper

import (
	"slices"
	"sync/atomic"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// Class has limits, and a queue of items that wait for their departure times. It is a node of
// a tree: an item leaves when its class and all classes above let it leave, and all of them are
// charged.
// A Class may be used concurrently. Its methods take the time as an argument: the pacer
// drives a live class by the clock, tests and simulations drive theirs by other times.
//
// Class itself has what is done with items: Join, Enter, Release, Left, Quit. What else one
// may ask or tell it stands in views, each a small value:
//
//	Messages  what the class does with messages and their answers; no lock
//	Provider  what the provider answers, and what came of that
//	Estimate  when there will be room, and when all will have left
//	Buckets   how many buckets there are, and which is free first
//	Status    what the class does and why, for people
type Class struct {
	// Set when the class is made, and read without a lock.

	// Stats are the counters of the class and those beneath it. Enter and Release count
	// waiting. Whoever moves the bytes counts what was sent, dropped or refused.
	Stats      *stats.Class
	tally      *Tally       // counts in Stats, and in those of the classes above
	keys       *keys        // the buckets of the class, which are its children; nil: it has none
	quiet      *quietGroups // the groups of the class, or of a bucket, by the quiet hours of recipients; nil: it has none
	owner      *Class       // the class whose group it is; the class itself if it is none
	trial      *Trial       // drives the tree of this class with copies; nil: none does, or one drives the class above
	makeShadow shadowMaker  // makes shadow when a policy asks for it

	terms // what anybody may ask without a lock

	// joined counts the sessions that have joined the class. If messages tell its buckets or groups apart, it counts
	// messages. In a bucket, the lock of the tree guards it. In a class of the policy, it changes without the lock.
	joined atomic.Int64

	// Guarded by the lock of the tree.
	conf       policy.Class
	backing    backing // its budget outside of this process: in a ledger, or in a fleet
	former     *Class  // the class that this one has replaced; nil: none
	heir       *Class  // the class that has replaced this one, and goes on from where it was; nil: none
	shadow     shadow  // computes what the class would do; nil: the class does it
	permits            // which sessions are open, and which wait for a permit
	bucketOnly         // what only a bucket has

	node // the place in the tree; it says itself which lock guards what
}

// terms are what anybody may ask of a class without a lock. Only the holder of the lock
// of the tree writes them.
type terms struct {
	name     string
	enforces atomic.Bool               // see Enforces
	rate     atomic.Pointer[unit.Rate] // see Rate
	reads    atomic.Pointer[policy.Reads]
	retry    atomic.Uint32 // see packRetry
	overflow atomic.Uint32 // its place in overflows
}

// overflows are the values of the policy's overflow.
var overflows = []policy.Overflow{"", policy.Wait, policy.Drop, policy.Refuse}

// publish sets the terms from a policy.
func (t *terms) publish(conf policy.Class) {
	rate := conf.Limit()
	t.rate.Store(&rate)
	t.enforces.Store(!conf.Shadow)
	t.reads.Store(nil)
	if conf.Reads != (policy.Reads{}) {
		reads := conf.Reads // the address of a part of conf would put all of it on the heap, each time
		t.reads.Store(&reads)
	}
	t.retry.Store(packRetry(conf))
	t.overflow.Store(uint32(max(slices.Index(overflows, conf.Overflow), 0)))
}

// packRetry returns the retry of a policy as one number, so that an atomic holds it: Max in the upper 16
// bits, InFlight in the lower. It is 0 if there is no retry, or if the class enforces nothing.
func packRetry(conf policy.Class) uint32 {
	if conf.Shadow {
		return 0
	}
	return uint32(conf.Retry.Max)<<16 | uint32(conf.Retry.InFlight)
}

// Name returns the name of the class in the policy.
func (t *terms) Name() string { return t.name }

// Rate returns the limit in force, without headroom: the ceil of a class that has one.
func (t *terms) Rate() unit.Rate { return *t.rate.Load() }

// Enforces reports whether the class does what its policy says. If not, the class has
// `shadow` and only computes it.
func (t *terms) Enforces() bool { return t.enforces.Load() }

// Reads returns what the class reads in messages and in their answers; nil for nothing.
func (t *terms) Reads() *policy.Reads { return t.reads.Load() }

// newClass returns a class without a policy in force and without a parent.
func newClass(conf policy.Class, counters *Tally, makeShadow shadowMaker) *Class {
	c := &Class{Stats: counters.Stats, terms: terms{name: conf.Name}, tally: counters, makeShadow: makeShadow}
	c.node.init(c, conf.Rate.Kind())
	c.owner, c.permits.of, c.backing.class = c, c, c
	return c
}

// Counting returns the nearest class on the path to the root that counts in a unit; nil
// for none.
func (c *Class) Counting(kind unit.Kind) *Class {
	for c != nil && c.kind != kind {
		c = c.Parent()
	}
	return c
}

// Policy returns the policy in force.
func (c *Class) Policy() policy.Class {
	defer c.lock().mu.Unlock()
	return c.conf
}

// Tally returns what counts for the class and for the classes above it. The tally of a nil class
// counts nothing.
func (c *Class) Tally() *Tally {
	if c == nil {
		return nil
	}
	return c.tally
}

// attach puts a class that is a root under a parent. The caller holds the locks of both.
func attach(now time.Time, c, parent *Class) {
	switch {
	case c.keys != nil && parent.keys != nil:
		c.keys.standBeneath(parent.keys)
	case c.bucketOf != nil && parent != c.bucketOf.class:
		c.side = &c.bucketOf.class.node
	}
	c.node.attach(now, &parent.node)
	moveInFlight(now, parent, c.inFlight)
	parent.count(c.open) // all of them have their permits: above a root nobody waits
	if c.Named() == c {  // buckets and groups have the tally of their class
		c.tally.above.Store(parent.tally)
	}
}

// detach makes a class a root. The caller holds the lock of the tree, and the lock that
// the class has as a root.
func detach(now time.Time, c *Class) {
	parent := c.Parent()
	c.withdraw()
	parent.count(-c.open)
	moveInFlight(now, parent, -c.inFlight)
	if c.Named() == c {
		c.tally.above.Store(nil)
	}
	if c.side != nil {
		c.side.inFlight -= c.inFlight
		c.side.class.open -= c.open
	}
	c.node.detach(now)
	c.side = nil
}

// moveInFlight tells the shadows of a class and of those above it that a class has come
// beneath them, with n items in flight. If n is negative, a class has gone with -n.
func moveInFlight(now time.Time, c *Class, n int) {
	for ; n != 0 && c != nil; c = c.Parent() {
		if c.shadow != nil {
			c.shadow.moveInFlight(now, n)
		}
	}
}

// put puts another policy in force for the class, but not for its buckets. The limiter goes on
// from where it was. The caller holds the lock of the tree, and calls update afterwards.
func (c *Class) put(now time.Time, conf policy.Class, next *pace) {
	c.regain(now)
	if c.shadow != nil && conf.Shadow {
		c.shadow.set(now, conf, c.unanswered())
		c.install(now, conf, next, limitless{})
		return
	}
	had := c.endShadow(now)
	c.shadow = nil
	c.install(now, conf, next, had.takeOver(now, next))
	c.backing.note(now)
}

// endShadow ends the shadow of the class, if the class has one. It returns the gate that
// has what was charged so far: the gate of the shadow, or else the gate of the class. The
// caller holds the lock of the tree.
func (c *Class) endShadow(now time.Time) *gate {
	if c.shadow != nil {
		return c.shadow.end(now)
	}
	return &c.gate
}

// install puts a policy in force, with its pace and its limiter. If the policy has
// `shadow`, a new shadow gets the limiter; a shadow that is there keeps its own. The caller
// holds the lock of the tree, unless nobody else knows the class yet.
func (c *Class) install(now time.Time, conf policy.Class, p *pace, l limit.Limiter) {
	if conf.Shadow && c.shadow == nil {
		c.shadow, l = c.makeShadow(now, conf, bare(l), shadowStats(c)), limitless{}
		c.shadow.moveInFlight(now, c.unanswered())
	}
	c.conf = conf
	c.passive = c.keys != nil || c.shadow != nil
	if c.backing.member != nil && c.bucketOf == nil {
		c.backing.member.Set(Limits(conf))
	}
	c.gate.set(now, conf, p, c.backing.limiter(now, p, l))
	c.asChild.compete(conf.Priority, int64(max(conf.Weight, 1)))
	c.queue.MaxItems = int(bound(conf.Queue.Items.N))
	c.queue.MaxBytes = bound(int64(conf.Queue.Bytes))
	// Only what comes over TCP can be made to wait, whatever the class counts.
	c.patient = conf.OverflowFor(policy.TCP) == policy.Wait
	if c.most = conf.MaxConnections; c.passive {
		c.most = 0
	}
	c.publish(conf)
	c.needsLeft.Store(c.settler != nil)
	c.piece.Store(c.pace.piece)
}

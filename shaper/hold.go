package shaper

import (
	"cmp"
	"slices"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// What may hold something up beside a limit.
const (
	HoldInFlight = "in_flight"   // answers are awaited
	HoldPause    = "on_throttle" // the provider has said "too fast"
	HoldClosed   = "schedule"    // nothing may leave at this time
	HoldQuiet    = "quiet"       // the recipient has quiet hours
	HoldHint     = "hints"       // the provider has said how much remains of its limit
	HoldStore    = "shared"      // the store of the fleet has granted nothing, or is away
	HoldPermits  = "max_connections"
)

// inWords says what somebody waits for. A limit that is not here has its own words: "600 messages/h".
var inWords = map[string]string{
	HoldInFlight: "answers",
	HoldPause:    "a pause of the provider",
	HoldClosed:   "the schedule",
	HoldQuiet:    "quiet hours",
	HoldHint:     "a hint of the provider",
	HoldStore:    "the store of its fleet",
	HoldPermits:  "sessions to end",
}

// A hold is what something waits for: the limit that lets it leave last. Whoever asks for a hold has the lock of the tree.
type hold struct {
	by    *policy.Class // whose limit it is; nil: nothing holds it up
	what  string        // a key of inWords, or the words of a limit
	until time.Time     // when the limit lets it leave; limit.Never: not by time alone
}

// reading returns the hold for people and programs; nil if there is none.
func (h hold) reading() *stats.Hold {
	if h.by == nil {
		return nil
	}
	r := &stats.Hold{Class: h.by.Name, Limit: h.what, Text: cmp.Or(inWords[h.what], h.what), Until: h.until}
	if h.until == limit.Never {
		r.Until = time.Time{}
	}
	return r
}

// oneOfEach costs one in each unit.
var oneOfEach = Cost{Bytes: 1, Packets: 1, Messages: 1, Connections: 1, Tokens: 1}

// nextHold returns what the first item of the queue of a class waits for in the class and above; that
// of the next item beneath it if the queue is empty, or of one of each unit if nobody knows which is next.
func nextHold(now time.Time, c *Class) hold {
	cost := &oneOfEach
	if front := c.front(); front != nil {
		cost = &front.Cost
	} else if next := c.asChild.upcoming().asChild.head; next != nil {
		cost = &next.Cost
	}
	return holdOn(now, &c.node, cost)
}

// An arrival is an item of one unit with a key that would come to a class now. To ask about it changes nothing about what leaves.
// The caller holds the lock of the tree.
type arrival struct {
	class *Class
	now   time.Time
	key   Key
}

// hold returns what the item waits for. Its end is when the item leaves behind all items that wait before it. If no limit holds
// up the item itself, it waits behind the first item of its queue: then hold returns what that waits for, and the item.
func (a arrival) hold() (h hold, behind *Item) {
	c, now := a.class, a.now
	h = holdOn(now, &c.node, &oneOfEach)
	for k := c.keys; k != nil; k = k.above {
		h.orLater(k.hold(now, a.key.bucket))
	}
	if a.key.group > 0 {
		p := quietPace(groupPolicy(c.conf, int(a.key.group-1)))
		h.orLater(hold{&c.conf, HoldQuiet, p.whenOpen(later(now, h.until))})
	}
	in := a.queue()
	if h.by == nil && in != nil && in.front() != nil {
		behind = in.front()
		h = holdOn(now, &in.node, &behind.Cost)
	}
	switch {
	case h.by == nil:
	case in != nil: // it leaves behind what waits there
		h.until = later(h.until, forecastAt(now, in).leaves(&oneOfEach))
	case c.keys != nil:
		h.until = later(h.until, c.keys.turn(now, a.key.bucket))
	}
	return h, behind
}

// queue returns where the item waits: in the class, in a bucket, or in a group of one of these; nil if that is yet to be
// opened.
func (a arrival) queue() *Class {
	c := a.class
	if c.keys != nil {
		c = c.keys.inUse(a.now, a.key.bucket)
	}
	if c != nil && a.key.group > 0 {
		return c.quiet.groups[a.key.group-1]
	}
	return c
}

// hold returns what one unit with a key would wait for in its bucket, without the classes above. If
// the key has no bucket, the bucket would begin with what is remembered of it, or with what the
// common one owes if the key has been there. With a shadow, the bucket holds nothing up.
func (k *keys) hold(now time.Time, key policy.Key) hold {
	if k.conf.Shadow {
		return hold{until: now}
	}
	g := k.gate(now, key)
	return g.hold(now, 1, &k.conf)
}

// gate returns what the bucket of a key allows, or would allow; see hold. It is a copy with the same limiter, so it has what is due
// of the rate.
func (k *keys) gate(now time.Time, key policy.Key) gate {
	state := bucketState{}
	if c := k.inUse(now, key); c != nil {
		c.regain(now)
		return c.gate
	} else if i := k.table.find(key); i != 0 {
		state = restore(now, k.table.kept(k.table.entry(i)), &k.pace)
	} else if k.common.follows(now, key) {
		k.common.bucket.regain(now)
		return k.common.bucket.gate
	} else {
		state = k.fresh(now)
	}
	return gate{regulator: regulator{pace: k.pace, limiter: state.limiter}, assured: state.assured}
}

// turn returns when one of each unit with a key that has no bucket leaves the classes above, after the
// turns of the buckets. A bucket that stands beneath a bucket of the class above has the turn of that
// bucket.
func (k *keys) turn(now time.Time, key policy.Key) time.Time {
	k = k.top()
	band := assured
	if g := k.gate(now, key); g.assured != nil && g.assured.Next().After(now) {
		band = borrowing
	}
	t := turn{keys: k, band: band, bucket: k.inUse(now, key)}
	return t.leaves(now, &oneOfEach)
}

// inUse returns the bucket of a key, or the common one if there is no room for the key; nil if a bucket
// would have to be opened.
func (k *keys) inUse(now time.Time, key policy.Key) *Class {
	k.forget(now, 2) // as bucket does, so that there is room for as many keys
	if c := k.table.bucketOfKey(key); c != nil {
		return c
	}
	if k.common.has(key) || k.table.find(key) == 0 && !k.hasRoom(now) {
		return k.common.bucket
	}
	return nil
}

// holdOn returns what an item of a node that costs so much waits for, on its whole path.
func holdOn(now time.Time, n *node, cost *Cost) hold {
	h := hold{until: now}
	for ; n != nil; n = n.parent.Load() {
		if units := cost.In(n.kind); units > 0 && !n.passive {
			h.orLater(n.gate.hold(now, units, &n.class.conf))
		}
	}
	return h
}

// reduced returns to which rate a fleet reduces the limit of the class that holding returns, and whether its store is away. The
// zero rate says that it does not.
func (r *regulator) reduced(part int, now time.Time, n int64) (to unit.Rate, away bool) {
	var budgets []Budget
	var parts []int // and then the number of the closed time
	switch l := r.limiter.(type) {
	case *shared:
		budgets, parts = l.budgets, l.parts()
	case *lent:
		budgets, parts = l.budgets, l.parts
	}
	if i := slices.Index(parts, part); 0 <= i && i < len(budgets) {
		return budgets[i].Reduced(now, n)
	}
	return to, false
}

// orLater makes h the other hold if that lasts longer.
func (h *hold) orLater(o hold) {
	if o.until.After(h.until) {
		*h = o
	}
}

// hold returns what an item of n units waits for in one class, whose policy is conf; a hold by
// nothing if it need not wait.
func (g *gate) hold(now time.Time, n int64, conf *policy.Class) hold {
	if g.awaitsAnswers() {
		return hold{conf, HoldInFlight, limit.Never}
	}
	until := g.expectedAt(now, n)
	if !until.After(now) {
		return hold{until: now}
	}
	if !g.throttle.until.Before(until) {
		return hold{conf, HoldPause, until}
	}
	if _, ok := g.limiter.(*shared); ok && until == limit.Never && !conf.Limit().IsZero() {
		return hold{conf, HoldStore, until}
	}
	part := g.holding(now, 0, n)
	_, away := g.reduced(part, now, n)
	switch {
	case away:
		return hold{conf, HoldStore, until}
	case part == 0:
		return hold{conf, conf.Limit().String(), until}
	case part <= len(conf.Also):
		return hold{conf, conf.Also[part-1].Rate.String(), until}
	default:
		return hold{conf, g.pace.outside(part), until}
	}
}

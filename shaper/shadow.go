package shaper

import (
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A class is in the shadow of what really leaves where it is offered copies of
// that by Mirror, and holds nothing up: its counters then say what would have
// waited, and what would have been dropped. It is not driven by the pacer. Whoever
// offers a copy, or reads the counters, first has those leave whose time has come
// since: each at its time, so that nothing is late.

// mostTwins bounds the copies that wait in a class, of sources which it would hold
// up, and of which there may be any number as nothing does.
const mostTwins = 1 << 14

// Source is what sends a stream, for those who are offered copies of it: each of those
// classes would hold it up by itself. The zero Source has sent nothing.
type Source struct {
	twins *twin // that stand for it, the latest first
}

// mostOfSource bounds the classes that remember a source, of which those that it has
// left never come again: as many as there are on a path.
const mostOfSource = 8

// A twin is a copy of an item.
type twin struct {
	item  Item
	class *Class // that it enters
	next  *twin  // of the same source, in another class; or that is not used

	// Of a stream it stands for what its source would send, were it held up.
	stream bool
	waits  bool
	rest   int64 // bytes that it would not have sent yet
}

// Mirror offers the class a copy of what costs so much, and leaves at now whatever
// the class makes of it. from is the source that waiting would hold up; nil where it
// would hold up none, as for datagrams.
func (c *Class) Mirror(now time.Time, cost Cost, from *Source) {
	root := c.lock()
	defer root.mu.Unlock()
	root.catchUp(now)
	now = root.latest
	patient := from != nil
	if patient && cost.Bytes > 0 && c.Counts(unit.Bytes) {
		from.in(c).send(now, cost.Bytes)
		return
	}
	for one := range each(cost, c.Counts(unit.Packets)) {
		t := c.spare
		if t == nil {
			t = &twin{class: c}
		}
		c.spare = t.next
		t.item = Item{Cost: one, Held: one.Bytes, Patient: patient, Owner: t}
		if t.enter(now); !t.waits {
			t.recycle()
		}
	}
}

func (t *twin) recycle() { t.next, t.class.spare = t.class.spare, t }

// each yields what leaves by itself: where packets are counted, each of them.
func each(cost Cost, packets bool) func(func(Cost) bool) {
	return func(yield func(Cost) bool) {
		n := int64(1)
		if packets {
			n = max(cost.Packets, 1)
		}
		for i := range n {
			one := cost
			one.Bytes = cost.Bytes*(i+1)/n - cost.Bytes*i/n
			one.Packets = cost.Packets / n
			if !yield(one) {
				return
			}
		}
	}
}

// in returns the twin that stands for the source in a class.
func (s *Source) in(c *Class) *twin {
	at := &s.twins
	for n := 1; *at != nil; at, n = &(*at).next, n+1 {
		if (*at).class == c {
			return *at
		}
		if n == mostOfSource-1 {
			(*at).next = nil
		}
	}
	t := &twin{class: c, stream: true, next: s.twins}
	t.item = Item{Owner: t, Patient: true}
	s.twins = t
	return t
}

// send has a source send so many bytes more, as soon as it may.
func (t *twin) send(now time.Time, n int64) {
	t.rest += n
	if !t.waits {
		t.item.Busy = false
		t.goOn(now)
	}
}

// goOn has what a source would send enter the class, until it has to wait.
func (t *twin) goOn(now time.Time) {
	for t.rest > 0 && !t.waits {
		n := min(t.rest, t.class.Piece())
		t.item.Cost, t.item.Held = Cost{Bytes: n}, n
		t.rest -= n
		t.enter(now)
	}
}

// enter has the twin enter its class, or counts it as dropped.
func (t *twin) enter(now time.Time) {
	c := t.class
	if c.queue.Len() >= mostTwins {
		c.countOverlimit()
		t.rest = 0
		return
	}
	switch c.enter(now, &t.item) {
	case Leaves:
		t.item.Busy = true
	case Waits:
		t.waits = true
	case Full:
		t.drop(stats.QueueFull)
	case TooLong:
		t.drop(stats.MaxWait)
	}
}

// drop counts what would have been dropped, or for which a session would have been
// closed.
func (t *twin) drop(reason stats.Reason) {
	t.class.CountDropped(reason, max(t.item.Cost.Packets, 1), t.item.Cost.Bytes)
	t.rest = 0
}

// Leave implements Owner, for catchUp.
func (t *twin) Leave(now time.Time) {
	t.waits, t.item.Busy = false, true
	if t.stream {
		t.goOn(now)
	} else {
		t.recycle()
	}
}

// CatchUp has all leave that would have by now.
func (c *Class) CatchUp(now time.Time) {
	root := c.lock()
	defer root.mu.Unlock()
	root.catchUp(now)
}

// catchUp is CatchUp of the root, with the lock.
func (c *Class) catchUp(now time.Time) {
	for next := c.next(c.latest); !next.After(now); next = c.next(c.latest) {
		c.latest = later(c.latest, next)
		if it := c.release(c.latest); it != nil {
			it.Owner.Leave(c.latest)
		}
	}
	c.latest = later(c.latest, now)
}

// Shadow returns the counters of what a class with `shadow` would do, as of now; nil
// where it does what it says.
func (c *Class) Shadow(now time.Time) *stats.Class {
	shadows := c.shadows()
	if len(shadows) == 0 {
		return nil
	}
	for _, s := range shadows { // of each bucket: too long for the lock of what really leaves
		s.CatchUp(now)
	}
	return shadows[0].Stats
}

// shadows returns those of the class and of its buckets.
func (c *Class) shadows() (all []*Class) {
	defer c.lock().mu.Unlock()
	if c.shadow != nil {
		c.each(func(c *Class) { all = append(all, c.shadow) })
	}
	return all
}

// shadowPolicy returns the policy of the class that computes what one with shadow
// would do: it alone, since those above it do what they say.
func shadowPolicy(conf policy.Class) policy.Class {
	conf.Shadow, conf.Parent = false, ""
	conf.Rate, conf.Ceil = conf.Limit(), unit.Rate{}
	return conf
}

// enforced returns the class that has the limiter: the one in the shadow where
// there is one.
func (c *Class) enforced() *Class {
	if c.shadow != nil {
		return c.shadow
	}
	return c
}

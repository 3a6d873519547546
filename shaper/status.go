package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
)

// A Status says what a class does and why, for people and for the programs that show it to them.
// Nothing leaves earlier or later because somebody has read it. Each method takes the lock of the
// tree and looks at all of it at one moment; Shadow and CatchUp also take those of trials, one after the
// other. A Status is a value of one pointer: to get one costs nothing.
type Status struct{ class *Class }

// Status returns what the class does and why.
func (c *Class) Status() Status { return Status{c} }

// Why explains why the class waits at now.
func (s Status) Why(now time.Time) Why {
	c := s.class
	root, now := c.lockAt(now)
	root.next(now)
	still := rehearse(now, root, &c.node)
	sessions, permits := permitHolds(&c.permits)
	root.mu.Unlock()
	// From here on all is about copies, without the lock.
	w := still.why(still.nodes[&c.node])
	w.Exact = w.Exact && !still.changesBefore(w.At)
	w.Sessions, w.Path = sessions, append(w.Path, permits...)
	return w
}

// Oldest returns when the item came that has waited for longest in the queues of the class, of its buckets and of its
// groups; zero if none waits there. If something waits in more than a thousand buckets, Oldest looks at those
// thousand in which something has waited without a break for longest. So an item in another one has waited for a shorter time than
// any of these has had items.
func (s Status) Oldest() (came time.Time) {
	c := s.class
	defer c.lock().mu.Unlock()
	withWaiting(c, func(c *Class) { came = earlierKnown(came, c.oldest()) })
	return came
}

// Waits returns what the next item waits for at now. It looks at the queues of the class, of its
// buckets and of its groups. If only classes beneath have items, it returns what holds those up in
// this class and above. If no item waits, but sessions wait for a permit of the class or of
// one of its buckets, it returns that. Waits
// returns nil if nothing waits, or only for its turn. If something waits
// in more than a thousand buckets, Waits looks at a thousand of them, and at the one whose turn is
// the next.
func (s Status) Waits(now time.Time) *stats.Hold {
	c := s.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if c.waiting == 0 {
		if c.permits.queued > 0 {
			return hold{&c.conf, HoldPermits, limit.Never}.reading()
		}
		return nil
	}
	root.next(now) // so that it is known whose turn is the next
	first, found := hold{until: limit.Never}, false
	withWaiting(c, func(c *Class) {
		if h := nextHold(now, c); !h.until.After(first.until) {
			first, found = h, true
		}
	})
	if !found {
		withHeads(c, func(c *Class) {
			if h := nextHold(now, c); !h.until.After(first.until) {
				first = h
			}
		})
	}
	return first.reading()
}

// WhyWithKey explains what an item of one unit would wait for if it came to the class at now, on a connection. m is that item; nil
// if it is no message, or if nothing is known of it. The time is an estimate of when the item leaves, behind all that
// waits before it; see Estimate. The backlog is what waits in the queue to which it would come. If it would not wait, or only for its turn, nothing holds it
// up. Sessions that wait for a permit do not count.
func (s Status) WhyWithKey(now time.Time, conn policy.Conn, m *policy.Message) Why {
	c := s.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	return arrival{c, now, c.Messages().Key(&conn, m)}.why()
}

// Tokens returns how many tokens the token bucket of the class has at now. It returns false if the class has none
// of its own.
func (s Status) Tokens(now time.Time) (tokens float64, ok bool) {
	c := s.class
	defer c.lock().mu.Unlock()
	b, ok := limit.Parts(bare(c.limiter))[0].(limit.TokenBucket)
	if !ok || c.passive {
		return 0, false
	}
	return b.Tokens(now), true
}

// Quotas returns what remains at now of each window of the class that lasts a minute or longer. If
// the class has buckets or a shadow, it has no windows itself, and of those that it shares others have used a part.
func (s Status) Quotas(now time.Time) (all []stats.QuotaReading) {
	c := s.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if c.passive || c.backing.member != nil {
		return nil
	}
	parts, limits := limit.Parts(bare(c.limiter)), append(c.conf.Also[:0:0], c.conf.Own())
	limits = append(limits, c.conf.Also...)
	i := 0
	for r := range c.pace.restraints() {
		if r.algorithm.HasWindow() && r.window >= quotaFrom {
			q := r.quota(now, parts[i], limits[i].WindowText())
			if r.algorithm != policy.FixedWindow {
				q.Resets = time.Time{}
			}
			all = addQuota(all, q)
		}
		i++
	}
	return all
}

// treeBacklog returns what waits in the tree of a root; nothing if the class has a parent, since the root above counts it. What
// waits in classes that it has replaced is not in it: these are in trees of their own, or beneath the parents that they had.
func (s Status) treeBacklog() Backlog {
	c := s.class
	root := c.lock()
	defer root.mu.Unlock()
	if root != &c.node {
		return Backlog{}
	}
	return c.backlog()
}

// CatchUp lets everything happen that is due at now in the trial of the class, so that what is read afterwards is of now. It does
// nothing if the class is in no trial.
func (s Status) CatchUp(now time.Time) {
	for c := s.class; c != nil; c = c.Parent() {
		if c.trial != nil {
			c.trial.CatchUp(now)
			return
		}
	}
}

// Shadow returns the counters of what a class with `shadow` would have done up to now; nil
// if the class has no `shadow`.
func (s Status) Shadow(now time.Time) *stats.Class {
	shadows := shadowsOf(s.class)
	if len(shadows) == 0 {
		return nil
	}
	for _, would := range shadows { // without the lock of the real tree, since there may be many buckets
		would.trial.CatchUp(now)
	}
	return shadows[0].Stats
}

package shaper

import "time"

// An Estimate says when something will leave a class, as far as anybody can know that now: if
// nothing else comes, no rate changes and the provider answers in time. It promises nothing, and it
// changes nothing about what leaves. Each method takes the lock of the tree. An Estimate is a value
// of one pointer: to get one costs nothing.
type Estimate struct{ class *Class }

// Estimate returns what estimates when something will leave the class.
func (c *Class) Estimate() Estimate { return Estimate{c} }

// Retry estimates how long it takes until there is room for what costs so much and was
// refused at now, if nothing else comes first. It is the longest Duration if there never
// will be room.
func (e Estimate) Retry(now time.Time, cost Cost) time.Duration {
	c := e.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	return forecastAt(now, c).room(&cost, time.Duration(c.conf.MaxWait)).Sub(now)
}

// Quota returns the limit that sets Retry: that of the class, or one of a class above. If no limit does, such as while the
// class pauses, it is that of the class.
func (e Estimate) Quota(now time.Time, cost Cost) Quota {
	c := e.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	return forecastAt(now, c).quota(&cost, time.Duration(c.conf.MaxWait))
}

// Place returns which place an item of this cost would have in the queue at now, from 1, and
// estimates how long it would wait there: the longest Duration if it would never leave.
func (e Estimate) Place(now time.Time, cost Cost) (position int, wait time.Duration) {
	c := e.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	return c.queue.Len() + 1, max(forecastAt(now, c).leaves(&cost).Sub(now), 0)
}

// Drain returns what waits in the queues of the class, of its buckets and groups, in the unit of
// the class. It estimates how long it takes until the last of it leaves; that is the time
// until limit.Never if it never does. If something waits in more than a thousand buckets, it looks at
// a thousand of them.
func (e Estimate) Drain(now time.Time) (cost int64, drain time.Duration) {
	c := e.class
	defer c.lock().mu.Unlock()
	held, allLeave := standstills{}, allLeave(now, c)
	withWaiting(c, func(c *Class) {
		cost += c.queueCost
		f := forecastAt(now, c)
		f.held, f.allLeave = held, allLeave
		drain = max(drain, f.drained().Sub(now))
	})
	if c.keys != nil {
		cost = c.keys.queueCost
	}
	return cost, drain
}

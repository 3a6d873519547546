package shaper

import "time"

// Evict takes the waiting items that match out of the queue and returns them,
// the one that has waited longest first. They have not left and are not charged.
func (c *Class) Evict(now time.Time, match func(*Item) bool) []*Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	var evicted []*Item
	for e := c.queue.Front(); e != nil; {
		it := e.Value
		e = e.Next()
		if match(it) {
			c.remove(it)
			evicted = append(evicted, it)
		}
	}
	c.wake(now)
	return evicted
}

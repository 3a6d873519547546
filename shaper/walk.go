package shaper

// withBuckets calls do with a class and with each of its buckets.
func withBuckets(c *Class, do func(*Class)) {
	do(c)
	if c.keys != nil {
		c.keys.each(do)
	}
}

// withWaiting calls do with the queues in which something waits: that of the class, those of its
// buckets and of the groups of all. If something waits in many buckets, it calls do for mostNodes
// of them, those in which something has waited without a break for longest, and for the one whose turn is
// the next: the tree is locked meanwhile, and nothing leaves.
func withWaiting(c *Class, do func(*Class)) {
	each := func(c *Class) {
		for _, group := range c.quiet.inUse {
			if group.queue.Len() > 0 {
				do(group)
			}
		}
		if c.queue.Len() > 0 {
			do(c)
		}
	}
	each(c)
	if c.keys == nil {
		return
	}
	if c.keys.waiting.Len() > mostNodes {
		if first := c.feed.first(); first != nil {
			each(first.class)
		}
	}
	for i, e := 0, c.keys.waiting.Front(); e != nil && i < mostNodes; i, e = i+1, e.Next() {
		each(e.Value)
	}
}

// withHeads calls do with the class, or if it has buckets, with those in which or beneath which something waits: at most mostNodes
// of them.
func withHeads(c *Class, do func(*Class)) {
	if c.keys == nil {
		do(c)
		return
	}
	for i, e := 0, c.keys.waiting.Front(); e != nil && i < mostNodes; i, e = i+1, e.Next() {
		do(e.Value)
	}
}

// withQueues calls do with a class, its buckets, and the groups of all of them.
func withQueues(c *Class, do func(*Class)) {
	withBuckets(c, func(c *Class) {
		for _, group := range c.quiet.inUse {
			do(group)
		}
		do(c)
	})
}

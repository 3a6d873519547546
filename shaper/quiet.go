package shaper

import (
	"slices"
	"time"

	"shaper/policy"
)

// group returns the group with a number of quietGroups.of; for 0 it is c itself.
func (c *Class) group(now time.Time, number int16) *Class {
	if number == 0 {
		return c
	}
	at := &c.quiet.groups[number-1]
	if *at == nil {
		*at = c.openGroup(now, int(number-1))
	}
	return *at
}

// openGroup adds a group to the class.
func (c *Class) openGroup(now time.Time, i int) *Class {
	conf := groupPolicy(c.conf, i)
	p := quietPace(conf)
	group := newClass(conf, c.tally, c.makeShadow)
	group.waker, group.quietOf = c.waker, c
	group.install(now, conf, &p, p.idle(now))
	attach(now, group, c)
	return group
}

// groupPolicy returns the policy of a group of a class.
func groupPolicy(conf policy.Class, i int) policy.Class {
	group := policy.DefaultClass(conf.Name)
	group.Parent, group.Rate, group.Queue, group.MaxWait, group.Overflow = conf.Name, conf.Limit(), conf.Queue, conf.MaxWait, conf.Overflow
	group.Quieted = conf.Quieted[i : i+1]
	group.Closed = group.Quieted[0].Closed
	return group
}

// setGroups puts the policy of the class in force for its groups.
func (c *Class) setGroups(now time.Time) {
	for i, group := range c.quiet.inUse {
		conf := groupPolicy(c.conf, i)
		if !conf.Equal(group.conf) {
			p := quietPace(conf)
			group.put(now, conf, &p)
			group.update(now)
		}
	}
}

// sameBuckets reports whether the same messages share buckets and groups in two policies.
func sameBuckets(a, b policy.Class) bool {
	return a.Per == b.Per && slices.EqualFunc(a.Quieted, b.Quieted, func(a, b policy.QuietGroup) bool { return slices.Equal(a.Recipients, b.Recipients) })
}

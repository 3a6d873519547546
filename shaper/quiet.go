package shaper

import (
	"slices"
	"time"

	"shaper/policy"
)

// group returns the group with a number, which is not 0; see of. It opens the group if no message
// has come yet. The lock of the tree is held.
func (q *quietGroups) group(now time.Time, number int16) *Class {
	at := &q.groups[number-1]
	if *at == nil {
		*at = q.open(now, int(number-1))
	}
	return *at
}

// open adds a group to the class.
func (q *quietGroups) open(now time.Time, i int) *Class {
	c := q.class
	conf := groupPolicy(c.conf, i)
	p := quietPace(conf)
	group := newClass(conf, c.tally, c.makeShadow)
	group.waker, group.owner = c.waker, c
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

// set puts the policy of the class in force for its groups.
func (q *quietGroups) set(now time.Time) {
	for i, group := range q.inUse {
		conf := groupPolicy(q.class.conf, i)
		if !conf.Equal(group.conf) {
			p := quietPace(conf)
			group.put(now, conf, &p)
			group.update(now)
		}
	}
}

// IsReplacedBy reports whether Shaper.Apply of a policy replaces the class by a new one: it is to count
// another unit than before, to have buckets for something else, or quiet hours for other recipients.
func (c *Class) IsReplacedBy(conf policy.Class) bool {
	return c.kind != conf.Rate.Kind() || !sameBuckets(c.Policy(), conf)
}

// sameBuckets reports whether the same messages share buckets and groups in two policies.
func sameBuckets(a, b policy.Class) bool {
	return a.Per == b.Per && slices.EqualFunc(a.Quieted, b.Quieted, func(a, b policy.QuietGroup) bool { return slices.Equal(a.Recipients, b.Recipients) })
}

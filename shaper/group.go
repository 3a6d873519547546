package shaper

import "shaper/policy"

// quietGroups are those of a class whose recipients have quiet hours. Each group is a class
// beneath it, in which the messages to these recipients wait. It limits nothing, except that it
// is closed in their quiet hours. So these messages hold up nobody else, and the limits of the
// class hold for all of them.
type quietGroups struct {
	class      *Class             // whose groups they are
	recipients policy.QuietGroups // of each group; never changes, so that anybody may read it
	groups     []*Class           // by number; nil: no message has come yet. The lock of the tree guards them
}

// newQuiet returns the groups of a class that gets the policy conf; nil if it has none.
func newQuiet(class *Class, conf policy.Class) *quietGroups {
	if len(conf.Quieted) == 0 {
		return nil
	}
	return &quietGroups{class, conf.Quieted, make([]*Class, len(conf.Quieted))}
}

// of returns the number of the group of a message, from 1; 0 if its recipient has no quiet hours.
// A nil message says nothing.
func (q *quietGroups) of(m *policy.Message) int16 {
	switch {
	case q == nil:
		return 0
	case m == nil:
		return int16(q.recipients.Of(nil) + 1)
	}
	return int16(q.recipients.Of(m.Recipient) + 1)
}

// inUse yields the groups to which messages have come.
func (q *quietGroups) inUse(yield func(i int, group *Class) bool) {
	if q == nil {
		return
	}
	for i, group := range q.groups {
		if group != nil && !yield(i, group) {
			return
		}
	}
}

// count returns how many groups messages have come to.
func (q *quietGroups) count() (n int) {
	for range q.inUse {
		n++
	}
	return n
}

// Named returns the class that the policy names: the class whose bucket or group c is, or c
// itself.
func (c *Class) Named() *Class {
	switch {
	case c == nil:
		return nil
	case c.owner.bucketOf != nil:
		return c.owner.bucketOf.class
	}
	return c.owner
}

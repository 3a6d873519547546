package shaper

import (
	"shaper/policy"
	"shaper/unit"
)

// Messages tells what a class does with messages and their answers, by its policy and those of the
// classes above. It takes no lock. That of a nil class does nothing with them.
type Messages struct{ class *Class }

// Messages returns what the class does with messages. The class may be nil.
func (c *Class) Messages() Messages { return Messages{c} }

// ReadsAnswers reports whether the class, or one above it, reads answers.
func (m Messages) ReadsAnswers() bool {
	for c := m.class; c != nil; c = c.Parent() {
		if r := c.Reads(); r != nil && r.ReadsAnswers() {
			return true
		}
	}
	return false
}

// TakesHints reports whether the class, or one above it, keeps to what answers say of the limits of
// the provider.
func (m Messages) TakesHints() bool {
	for c := m.class; c != nil; c = c.Parent() {
		if r := c.Reads(); r != nil && r.Hints {
			return true
		}
	}
	return false
}

// Cost returns what says the cost of the messages in a unit: the nearest class on the path to the
// root that counts in it and has a cost; nil if none does.
func (m Messages) Cost(kind unit.Kind) *policy.Cost {
	for c := m.class; c != nil; c = c.Parent() {
		if r := c.Reads(); r != nil && r.Cost != nil && c.kind == kind {
			return r.Cost
		}
	}
	return nil
}

// SettledBy returns where the answer says the cost in a unit; nil if that is nowhere. It looks for
// a class as Cost does.
func (m Messages) SettledBy(kind unit.Kind) *policy.Place {
	for c := m.class; c != nil; c = c.Parent() {
		if r := c.Reads(); r != nil && r.Settle != nil && c.kind == kind {
			return r.Settle
		}
	}
	return nil
}

// More returns how much more a message costs in a unit than it was charged, if its answer says that it
// costs so many; less than 0 if it costs less. A charge does not rise above the highest cost.
func (m Messages) More(kind unit.Kind, charged, says int64) int64 {
	return m.Cost(kind).More(charged, says)
}

// Retry returns how messages that the provider has refused are sent again: by the retry of the
// nearest class on the path to the root that has one. The zero Retry sends none again.
func (m Messages) Retry() policy.Retry {
	for c := m.class; c != nil; c = c.Parent() {
		if r := c.retry.Load(); r != 0 {
			return policy.Retry{Max: int(r >> 16), InFlight: int(r & 0xffff)}
		}
	}
	return policy.Retry{}
}

// OverflowFor returns what happens to a message of a listener with that protocol if the class has no room for it.
func (m Messages) OverflowFor(p policy.Protocol) policy.Overflow {
	return overflows[m.class.overflow.Load()].For(p, m.class.kind)
}

// HaveBuckets reports whether the class has buckets that messages tell apart. What has no key cannot enter it then.
func (m Messages) HaveBuckets() bool {
	return m.class != nil && m.class.keys != nil && m.class.keys.byMessage
}

// HaveKeys reports whether the class has buckets or groups that messages tell apart.
func (m Messages) HaveKeys() bool {
	switch c := m.class; {
	case c == nil:
		return false
	case c.keys != nil:
		return c.keys.byMessage
	default:
		return c.quiet != nil
	}
}

// A Key says where a message waits in a class that has buckets or groups.
type Key struct {
	bucket policy.Key
	group  int16 // see quietGroups.of
}

// Key returns the key of a message on a connection. It does not allocate.
func (m Messages) Key(conn *policy.Conn, of *policy.Message) (key Key) {
	if k := m.class.keys; k != nil {
		key.bucket = k.keyOf(conn, of)
	}
	key.group = m.class.quiet.of(of)
	return key
}

// keyOf returns the key of a session, or of a message on its connection. A class has the keys of the class above.
func (k *keys) keyOf(conn *policy.Conn, of *policy.Message) policy.Key {
	return k.per.KeyWith(k.top().secret, conn, of)
}

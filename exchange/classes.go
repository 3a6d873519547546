package exchange

import (
	"math"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
)

// classes are those that messages to the provider enter. The exchange has joined each of
// them once; its host quits the one of own, and the exchange the others.
type classes struct {
	rules policy.MessageRules
	tags  []uint16        // of the classes that the rules lead to
	all   []*shaper.Class // by the tag of a message
	own   uint16          // the tag of what no rule leads elsewhere
}

// Obey takes the rules about messages. join returns the class of a rule, which it has
// joined for the exchange; nil stands for the class of the connection.
func (x *Exchange) Obey(now time.Time, rules policy.MessageRules, join func(class string) *shaper.Class) {
	c := &x.classes
	c.rules, c.tags = rules, c.tags[:0]
	for _, rule := range rules {
		tag := c.own
		if class := join(rule.Class); class != nil {
			tag = c.tag(class, now)
		}
		c.tags = append(c.tags, tag)
	}
}

// Belong puts the connection into another class, which its host has joined. What is in
// flight is still answered in the class before, and so the exchange quits that.
func (x *Exchange) Belong(now time.Time, class *shaper.Class) {
	x.classes.own = x.classes.tag(class, now)
}

// tag returns the number of a class that has just been joined.
func (c *classes) tag(class *shaper.Class, now time.Time) uint16 {
	for i, known := range c.all {
		if known == class {
			class.Quit(now) // once is enough
			return uint16(i)
		}
	}
	if len(c.all) > math.MaxUint16 {
		class.Quit(now)
		return c.own
	}
	c.all = append(c.all, class)
	return uint16(len(c.all) - 1)
}

// of returns the tag of the class of a message.
func (c *classes) of(m *frame.Message) uint16 {
	msg := Seen(m)
	if i := c.rules.First(&msg); i >= 0 {
		return c.tags[i]
	}
	return c.own
}

// Seen returns what rules see of a message.
func Seen(m *frame.Message) policy.Message {
	return policy.Message{Path: m.Path, Method: m.Method, Host: m.Host, SystemID: m.SystemID, SourceAddr: m.SourceAddr}
}

// classify finds the class of the message that was found.
func (l *lane) classify() {
	if l.isUp() {
		l.found.tag = l.x.classes.of(&l.found.message)
	}
}

// quit leaves all classes but that of the connection.
func (c *classes) quit(now time.Time) {
	for tag, class := range c.all {
		if uint16(tag) != c.own {
			class.Quit(now)
		}
	}
}

// class returns the class of the message that was found last, and of the bytes behind it;
// nil for none.
func (l *lane) class() *shaper.Class {
	if l.isUp() {
		return l.x.classes.all[l.found.tag]
	}
	return l.body.flow.Class()
}

package exchange

import (
	"math"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
)

// classes are those of the messages to the provider. The exchange has joined each of them
// once. The host quits the class of the tag own, and the exchange quits the others.
type classes struct {
	rules policy.MessageRules
	tags  []uint16        // of the classes of rules, in the same order
	all   []*shaper.Class // the class of each tag
	own   uint16          // the tag of the connection's class, for messages that no rule matches
}

// Obey sets the rules about messages. join joins the class of a rule and returns it; nil
// stands for the class of the connection.
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

// Belong puts the connection into another class, which the host has joined. The class before
// still gets the answers to what is in flight, so the exchange quits it later.
func (x *Exchange) Belong(now time.Time, class *shaper.Class) {
	x.classes.own = x.classes.tag(class, now)
}

// tag returns the tag of a class that was joined just now.
func (c *classes) tag(class *shaper.Class, now time.Time) uint16 {
	for i, known := range c.all {
		if known == class {
			class.Quit(now) // it is joined already, and once is enough
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

// Seen returns what rules see of a message. It points into the bytes of the message.
func Seen(m *frame.Message) policy.Message {
	return policy.Message{Path: m.Path, Method: m.Method, Host: m.Host, SystemID: m.SystemID, SourceAddr: m.SourceAddr}
}

// classify finds the class of the message that was found.
func (l *lane) classify() {
	if l.isUp() {
		l.found.tag = l.x.classes.of(&l.found.message)
	}
}

// quit quits all classes except that of the connection.
func (c *classes) quit(now time.Time) {
	for tag, class := range c.all {
		if uint16(tag) != c.own {
			class.Quit(now)
		}
	}
}

// class returns the class of the message that was found last and of its body; nil if there is
// none.
func (l *lane) class() *shaper.Class {
	if l.isUp() {
		return l.x.classes.all[l.found.tag]
	}
	return l.body.flow.Class()
}

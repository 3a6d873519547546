package exchange

import (
	"math"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// classes are those of the messages to the provider. Each has a tag, by which the messages
// that wait, and the link, remember it.
//
// The exchange has joined the class of each tag once. The host quits the class of the tag own.
// The exchange quits the other classes. It quits the class of a rule when no rule has the class
// any more and no message uses it, or in the end. If messages tell the buckets of a class
// apart, each bucket has a tag of its own while messages of its key wait, are on their way out,
// or have no answer yet. So has each group of recipients with quiet hours; here such a group is
// a bucket, too.
type classes struct {
	who   policy.Conn // the connection, as rules and keys see it
	rules policy.MessageRules
	tags  []uint16 // of the classes of rules, in the same order
	all   []tagged // by tag; the first is unlimited
	own   uint16   // the tag of the connection's class, for messages that no rule matches

	keyed map[bucketKey]uint16 // the tags of buckets
	free  []uint16             // tags that are in no use
}

// unlimited is the tag of messages of which no class keeps account: those to the client, and those that
// only keep their place.
const unlimited = 0

// tagged is what a tag stands for.
type tagged struct {
	class      *shaper.Class // nil: the tag is free
	perMessage bool          // the class has buckets that messages tell apart
	isBucket   bool          // it is one of them
	key        bucketKey     // of the bucket
	kept       bool          // it is the class of the connection or of a rule, which stays without users
	users      int           // see use
}

// bucketKey is the bucket of a key in the class of a tag.
type bucketKey struct {
	class uint16
	key   shaper.Key
}

// init puts the connection into its class.
func (c *classes) init(own *shaper.Class) {
	c.all, c.own = []tagged{{}, {class: own, perMessage: own.Messages().HaveKeys()}}, 1
	c.keep()
}

// Obey sets the rules about messages, and who the connection is for them. join joins the
// class of a rule and returns it; nil stands for the class of the connection.
func (c *classes) Obey(now time.Time, who policy.Conn, rules policy.MessageRules, join func(class string) *shaper.Class) {
	c.who, c.rules, c.tags = who, rules, c.tags[:0]
	for range rules {
		c.tags = append(c.tags, c.own)
	}
	c.Rejoin(now, join)
}

// Rejoin is Obey of the rules that the exchange has: the policy tells no others, since it has lost the listener. If join
// returns nil, the policy has lost the class of a rule, too, and its messages stay in it.
func (c *classes) Rejoin(now time.Time, join func(class string) *shaper.Class) {
	for i, rule := range c.rules {
		if class := join(rule.Class); class != nil {
			c.tags[i] = c.tag(class, now)
		}
	}
	c.keep()
}

// Belong puts the connection into another class, which the host has joined. The class before
// still gets the answers to what is in flight, so the exchange quits it later.
func (c *classes) Belong(now time.Time, class *shaper.Class) {
	c.own = c.tag(class, now)
	c.keep()
}

// keep notes which classes stay without users.
func (c *classes) keep() {
	for tag := range c.all {
		c.all[tag].kept = tag == unlimited
	}
	c.all[c.own].kept = true
	for _, tag := range c.tags {
		c.all[tag].kept = true
	}
}

// tag returns the tag of a class that was joined just now.
func (c *classes) tag(class *shaper.Class, now time.Time) uint16 {
	for i := range c.all {
		if known := &c.all[i]; known.class == class && !known.isBucket {
			class.Quit(now) // it is joined already, and once is enough
			return uint16(i)
		}
	}
	tag, ok := c.newTag(tagged{class: class, perMessage: class.Messages().HaveKeys()})
	if !ok {
		class.Quit(now)
		return c.own
	}
	return tag
}

// newTag returns a tag; false if all are in use.
func (c *classes) newTag(of tagged) (tag uint16, ok bool) {
	if last := len(c.free) - 1; last >= 0 {
		tag, c.free = c.free[last], c.free[:last]
		c.all[tag] = of
		return tag, true
	}
	if len(c.all) > math.MaxUint16 {
		return 0, false
	}
	c.all = append(c.all, of)
	return uint16(len(c.all) - 1), true
}

// leads reports whether a rule, or the connection itself, still leads to the class of a tag.
func (c *classes) leads(tag uint16) bool {
	if t := &c.all[tag]; t.isBucket {
		tag = t.key.class
	}
	return c.all[tag].kept
}

// of returns the tag of the class of a message, which has one more use.
func (c *classes) of(now time.Time, m *frame.Message) uint16 {
	if len(c.rules) == 0 && !c.all[c.own].perMessage {
		c.use(c.own)
		return c.own
	}
	msg := Seen(m)
	return c.bucketOf(now, c.ruledBy(&msg), &msg)
}

// ruledBy returns the tag of the class to which the rules lead a message.
func (c *classes) ruledBy(m *policy.Message) uint16 {
	if i := c.rules.First(m); i >= 0 {
		return c.tags[i]
	}
	return c.own
}

// bucketOf returns the tag of the bucket for a message in the class of a tag, or that tag if
// messages have no buckets there. It has one more use. m may be nil, if nothing is known of the message. If all
// tags are in use, the result is the tag of the class; a class with `per` refuses what enters it.
func (c *classes) bucketOf(now time.Time, class uint16, m *policy.Message) uint16 {
	if !c.all[class].perMessage {
		c.use(class)
		return class
	}
	key := bucketKey{class, c.all[class].class.Messages().Key(&c.who, m)}
	tag, ok := c.keyed[key]
	if !ok {
		if tag, ok = c.newTag(tagged{isBucket: true, key: key}); !ok {
			c.use(class)
			return class
		}
		c.use(class) // by the bucket
		if c.keyed == nil {
			c.keyed = map[bucketKey]uint16{}
		}
		c.keyed[key] = tag
		c.all[tag].class = c.all[class].class.JoinKey(now, key.key)
	}
	c.use(tag)
	return tag
}

// use notes one more use of a tag: by the message that was found last, by one in memory, by one that was sent
// or refused and has no answer yet, or by a bucket of the class.
func (c *classes) use(tag uint16) { c.all[tag].users++ }

// disuse ends a use of a tag. After the last one, the exchange quits the class, unless that is kept.
func (c *classes) disuse(now time.Time, tag uint16) {
	c.all[tag].users--
	c.quitUnused(now, tag)
}

// quitUnused quits the class of a tag that is neither kept nor used.
func (c *classes) quitUnused(now time.Time, tag uint16) {
	t := c.all[tag]
	if t.kept || t.users > 0 || t.class == nil {
		return
	}
	t.class.QuitKey(now, t.key.key)
	c.all[tag] = tagged{}
	c.free = append(c.free, tag)
	if t.isBucket {
		delete(c.keyed, t.key)
		c.disuse(now, t.key.class)
	}
}

// quitAllUnused quits the classes that are neither kept nor used.
func (c *classes) quitAllUnused(now time.Time) {
	for tag := range c.all {
		c.quitUnused(now, uint16(tag))
	}
}

// Seen returns what rules and keys see of a message. It points into the bytes of the message.
func Seen(m *frame.Message) policy.Message {
	says := m.Submit()
	return policy.Message{Path: m.Path, Method: m.Method, Host: m.Host, Headers: m.Fields, SystemID: m.SystemID,
		SourceAddr: says.SourceAddr, Recipient: says.Recipient, DataCoding: says.DataCoding, ESMClass: says.ESMClass}
}

// classify finds the class of the message that was found. Its body passes in the same class.
func (l *lane) classify() {
	if l.isUp() {
		before := l.found.tag
		l.found.tag = l.x.classes.of(l.x.now, &l.found.message)
		l.body.flow.Move(l.x.now, l.class().Counting(unit.Bytes))
		l.x.classes.disuse(l.x.now, before)
	}
}

// quit quits the classes of rules, now or when their last use ends.
func (c *classes) quit(now time.Time) {
	c.rules, c.tags = nil, c.tags[:0]
	c.keep()
	c.quitAllUnused(now)
}

// class returns the class of the message that was found last and of its body; nil if there is
// none.
func (l *lane) class() *shaper.Class {
	if l.isUp() {
		return l.x.classes.all[l.found.tag].class
	}
	return l.body.flow.Class()
}

package conn

import (
	"time"

	"shaper/exchange"
	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// copies is what a policy in the shadow sees of a session. nil stands for no such policy, and
// its methods do nothing. The lock of the session guards it.
type copies struct {
	guest     *shaper.Guest
	own, back *shaper.Class // of the session, upstream and downstream; nil: not limited
	protocol  policy.Protocol
	rules     policy.MessageRules
	classes   []*shaper.Class      // of the rules, one for each
	inFlight  map[uint32][]*copied // by the number of the message in its protocol; 0 if answers come in order
}

// copied is a message that the provider answers.
type copied struct {
	of     *copies
	copy   *shaper.Copy // nil: nothing limits it in the shadow, or it was sent before
	number uint32
	sent   time.Time
}

// mirror implements session.
func (t *tcpSession) mirror(s *shadow) {
	t.do(func(t *tcpSession) {
		t.copies.end(false) // of the policy before
		t.copies = nil
		t.copyTo(s, t.describe(), time.Now())
		switch {
		case t.copies == nil || t.stage == arriving: // acquire opens them
		case t.stage == queued:
			t.copies.open(t)
		default:
			t.copies.guest.Stay(time.Now())
		}
	})
}

// copyTo sends copies of what goes through the session to a policy from now on; nil ends that.
// If the policy gets copies already, the session has failed over.
func (t *tcpSession) copyTo(s *shadow, who policy.Conn, now time.Time) {
	guest := t.copies.follow(s, who, now)
	if t.copies = nil; guest == nil {
		t.up.flow.Mirror(nil)
		t.down.flow.Mirror(nil)
		t.relay.copyTo(nil)
		return
	}
	c := &copies{guest: guest, protocol: t.conf.Protocol, inFlight: map[uint32][]*copied{}}
	c.own, c.back = guest.Classes()
	if t.conf.Protocol.HasMessages() {
		c.rules = s.classifier.Messages(who)
	}
	for _, rule := range c.rules {
		c.classes = append(c.classes, guest.Join(now, s.classes[rule.Class], who))
	}
	t.copies = c
	t.up.flow.Mirror(&guest.Up)
	t.down.flow.Mirror(&guest.Down)
	t.relay.copyTo(c)
}

// expect makes the first n answers belong to messages that were sent before, as HTTP needs.
func (c *copies) expect(n int) {
	for range n {
		c.inFlight[0] = append(c.inFlight[0], &copied{of: c})
	}
}

// follow returns the guest of a session that who describes now; nil for none.
func (c *copies) follow(s *shadow, who policy.Conn, now time.Time) *shaper.Guest {
	if c == nil {
		return s.guest(who, now)
	}
	if up, down := s.classesOf(who); c.guest.Follow(now, who, up, down) {
		return c.guest
	}
	c.end(false)
	return s.guest(who, now)
}

// reopen asks for a slot in the shadow and connects there, unless that is done. The real
// session needs neither, since its own class has not changed.
func (c *copies) reopen(t *tcpSession) {
	if c != nil {
		c.open(t)
		c.guest.Up.Send(time.Now(), shaper.Cost{Connections: 1})
	}
}

// open asks for a slot in the shadow, unless that is done.
func (c *copies) open(t *tcpSession) {
	if c != nil {
		c.guest.Open(time.Now(), t.conf.Protocol)
	}
}

// Found implements exchange.Watcher: it offers a copy of the message to its class. It follows
// the message if the provider answers it.
func (c *copies) Found(now time.Time, f exchange.Found) exchange.Follower {
	source, class := &c.guest.Down, c.back
	if f.Direction == stats.Upstream {
		source, class = &c.guest.Up, c.classify(f.Message)
	}
	o := shaper.Offer{
		Class: class, Cost: shaper.Cost{Messages: f.Message.Cost, Bytes: int64(f.Size)},
		Asks: f.Asks, Fatal: !f.Message.Refusable, Alone: c.protocol == policy.HTTP,
		Holds: policy.Holds(int64(f.Size)),
	}
	o.Waits = class != nil && exchange.MakesWait(class, c.protocol, f.Message.Refusable)
	copy := source.Offer(now, o)
	if !f.Asks {
		return nil
	}
	return &copied{of: c, copy: copy, number: f.Message.Sequence}
}

// classify returns the class of a message.
func (c *copies) classify(m *frame.Message) *shaper.Class {
	msg := exchange.Seen(m)
	if i := c.rules.First(&msg); i >= 0 {
		return c.classes[i]
	}
	return c.own
}

// Sent implements exchange.Follower: the provider has the message, and will answer it. After
// end it does nothing.
func (m *copied) Sent(now time.Time) {
	if c := m.of; c.inFlight != nil {
		m.copy.Sent(now)
		m.sent = now
		c.inFlight[m.number] = append(c.inFlight[m.number], m)
	}
}

// Refused implements exchange.Follower.
func (m *copied) Refused(now time.Time, _ stats.Reason) {
	if m.of.inFlight != nil {
		m.copy.Answered(now)
	}
}

// Dropped implements exchange.Follower. The copy ends with its guest.
func (m *copied) Dropped(time.Time, stats.Reason) {}

// Answered implements exchange.Watcher: the first message in flight with this number has its
// answer.
func (c *copies) Answered(now time.Time, number uint32) {
	waiting := c.inFlight[number]
	switch len(waiting) {
	case 0:
		return
	case 1:
		delete(c.inFlight, number)
	default:
		c.inFlight[number] = waiting[1:]
	}
	waiting[0].copy.Answered(now)
}

// Expired implements exchange.Watcher.
func (c *copies) Expired(now, before time.Time) {
	for number := range c.inFlight {
		for len(c.inFlight[number]) > 0 && c.inFlight[number][0].sent.Before(before) {
			c.Answered(now, number)
		}
	}
}

// end ends the guest. clean says whether the session has ended cleanly.
func (c *copies) end(clean bool) {
	if c != nil {
		c.guest.End(time.Now(), clean)
		c.inFlight = nil
	}
}

// finish implements part.
func (c *copies) finish(result stats.Result) { c.end(result == stats.OK) }

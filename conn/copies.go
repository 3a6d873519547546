package conn

import (
	"time"

	"shaper/exchange"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// copies sends copies of the traffic of a session to the policy in the shadow. It is nil if
// there is no such policy: follow, open, reopen, end and finish accept that. The lock of the
// session guards it.
type copies struct {
	guest     *shaper.Guest   // stands for the session in the shadow
	own, back *shaper.Class   // the guest's classes, upstream and downstream; nil: not limited
	protocol  policy.Protocol // of the session
	who       policy.Conn     // the session, as rules and keys see it
	rules     policy.MessageRules
	classes   []*shaper.Class // classes[i] is for the messages that rules[i] matches

	// inFlight holds the messages whose answers are still to come, by their number in the
	// protocol, the earliest first. The number is 0 if answers come in order. nil: end was called.
	inFlight map[uint32][]*copied
}

// copied is a message to the upstream that gets an answer.
type copied struct {
	of     *copies
	copy   *shaper.Copy // nil: the shadow does not limit it, or had no copies yet when it was sent
	number uint32       // in its protocol; see copies.inFlight
	sent   time.Time    // when it left for the upstream; zero: it has not, or see expect
}

// mirror implements session: from now on it sends copies of the traffic to the policy s, and
// no longer to the one before. nil: to none.
func (t *tcpSession) mirror(s *shadow) {
	t.do(func(t *tcpSession) {
		if _, ok := t.relay.(*association); ok { // its datagrams have sessions of their own
			return
		}
		t.copies.end(false) // those for the policy before
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

// copyTo sends copies of the traffic to the policy s from now on; nil: to none. who describes
// the session. If s gets copies already, the session has failed over: it keeps its guest if
// that may stay; see follow. The locks of the routes and of the session are held.
func (t *tcpSession) copyTo(s *shadow, who policy.Conn, now time.Time) {
	who = s.withBind(who)
	guest := t.copies.follow(s, who, &t.conf.Listener, now)
	if t.copies = nil; guest == nil {
		t.up.flow.Mirror(nil)
		t.down.flow.Mirror(nil)
		t.relay.copyTo(nil)
		return
	}
	c := &copies{guest: guest, who: who, protocol: t.conf.Protocol, inFlight: map[uint32][]*copied{}}
	c.own, c.back = guest.Classes()
	c.rules = s.rulesOf(who, &t.conf.Listener)
	for _, rule := range c.rules {
		c.classes = append(c.classes, guest.Join(now, s.classes[rule.Class], who))
	}
	t.copies = c
	t.up.flow.Mirror(&guest.Up)
	t.down.flow.Mirror(&guest.Down)
	t.relay.copyTo(c)
}

// expect makes Answered ignore the next n answers: they belong to messages that were sent
// before the copies began. Only HTTP needs it, since its answers have no numbers. Messages that wait then
// have followers without a copy, for the same reason.
func (c *copies) expect(n int) {
	for range n {
		c.inFlight[0] = append(c.inFlight[0], &copied{of: c})
	}
}

// follow returns the guest in s of the session that who describes, from a listener; nil if s is nil. It moves the
// guest that there is. If its upstream class in the shadow changes, follow ends it and returns
// another one, which has no permit yet.
func (c *copies) follow(s *shadow, who policy.Conn, conf *policy.Listener, now time.Time) *shaper.Guest {
	if c == nil {
		return s.guest(who, conf, now)
	}
	if up, down := s.classesOf(who, conf); c.guest.Follow(now, who, up, down) {
		return c.guest
	}
	c.end(false)
	return s.guest(who, conf, now)
}

// reopen asks for a permit in the shadow and connects there, unless the guest has done so. Call
// it when a session that fails over stays in its class: it keeps its permit and asks for nothing,
// but its guest may be new.
func (c *copies) reopen(t *tcpSession) {
	if c != nil {
		c.open(t)
		c.guest.Up.Send(time.Now(), shaper.Cost{Connections: 1})
	}
}

// open asks for a permit in the shadow, unless the guest has done so.
func (c *copies) open(t *tcpSession) {
	if c != nil {
		c.guest.Open(time.Now(), t.conf.Protocol)
	}
}

// Found implements exchange.Watcher: it offers a copy of the message to the class that the
// message has in the shadow. If the message gets an answer, Found returns its follower.
func (c *copies) Found(now time.Time, f exchange.Found) exchange.Follower {
	source, class, msg := &c.guest.Down, c.back, exchange.Seen(f.Message)
	if f.Direction == stats.Upstream {
		source, class = &c.guest.Up, c.classify(&msg)
	}
	var key shaper.Key
	if class.Messages().HaveKeys() {
		key = class.Messages().Key(&c.who, &msg)
	}
	o := shaper.Offer{
		Class: class, Key: key, Cost: f.Cost,
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

// classify returns the class of a message to the upstream, in the shadow; nil: not limited.
func (c *copies) classify(m *policy.Message) *shaper.Class {
	if i := c.rules.First(m); i >= 0 {
		return c.classes[i]
	}
	return c.own
}

// Sent implements exchange.Follower: the message has left, and the provider will answer it.
// After end it does nothing.
func (m *copied) Sent(now time.Time) {
	if c := m.of; c.inFlight != nil {
		m.copy.Sent(now)
		m.sent = now
		c.inFlight[m.number] = append(c.inFlight[m.number], m)
	}
}

// Refused implements exchange.Follower: the message is refused in force, so the provider never
// answers it. Its copy, if the shadow lets it go, has its answer at once. After end Refused does
// nothing.
func (m *copied) Refused(now time.Time, _ stats.Reason) {
	if m.of.inFlight != nil {
		m.copy.Answered(now)
	}
}

// Dropped implements exchange.Follower. The connection has ended, so end deals with the copy.
func (m *copied) Dropped(time.Time, stats.Reason) {}

// Answered implements exchange.Watcher: the earliest message in flight with this number has its
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

// Expired implements exchange.Watcher: it takes each message that was sent before a time as
// answered now. It is not called for HTTP, so no message of expect is in flight.
func (c *copies) Expired(now, before time.Time) {
	for number := range c.inFlight {
		for len(c.inFlight[number]) > 0 && c.inFlight[number][0].sent.Before(before) {
			c.Answered(now, number)
		}
	}
}

// end ends the guest: the session has ended, or another guest takes its place. If clean, what
// the session has sent still goes through the shadow.
func (c *copies) end(clean bool) {
	if c != nil {
		c.guest.End(time.Now(), clean)
		c.inFlight = nil
	}
}

// finish implements part.
func (c *copies) finish(result stats.Result) { c.end(result == stats.OK) }

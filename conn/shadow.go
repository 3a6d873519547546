package conn

import (
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
)

// shadow is a policy that gets copies of all that comes, and whose classes only
// compute what they would do.
type shadow struct {
	routes
	trial *shaper.Trial
}

// Shadow has copies of what comes to every session, those that are open too, be
// offered to the classes that the rules of p give it, which are those of a trial. A nil
// p ends it.
func (s *Server) Shadow(p *policy.Policy, trial *shaper.Trial) {
	s.routesMu.Lock()
	defer s.routesMu.Unlock()
	s.shadow = nil
	if p != nil {
		s.shadow = &shadow{routes{policy.Compile(p), map[string]*shaper.Class{}}, trial}
		for _, class := range trial.Classes() {
			s.shadow.classes[class.Name()] = class
		}
	}
	for _, one := range s.all() {
		one.mirror(s.shadow)
	}
}

// catchUp has copies leave whose time has come: else the next one, after a long pause,
// would hold up its session while all of them do.
func (s *Server) catchUp(now time.Time) {
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	if s.shadow != nil {
		s.shadow.trial.CatchUp(now)
	}
}

// guest returns what stands for a connection in the trial; nil where no policy is in
// the shadow.
func (s *shadow) guest(who policy.Conn, now time.Time) *shaper.Guest {
	if s == nil {
		return nil
	}
	up, down := s.classesOf(who)
	return s.trial.Guest(now, who, up, down)
}

// classesOf returns the classes of a connection, there and back; nil for none.
func (s *shadow) classesOf(who policy.Conn) (up, down *shaper.Class) {
	d := s.classifier.Classify(who)
	return s.classes[d.Class], s.classes[d.ReturnClass]
}

// copies is a session as the policy in the shadow has it. The lock of the session
// guards it. What is nil stands for no such policy, and does nothing.
type copies struct {
	guest     *shaper.Guest
	own, back *shaper.Class // of the session, there and back; nil: not limited
	rules     policy.MessageRules
	classes   []*shaper.Class       // that they lead to
	inFlight  map[uint32][]inFlight // by the number that the protocol gives a message; all 0 where answers come in order
}

// inFlight is a message that has been sent and is not answered.
type inFlight struct {
	copy *shaper.Copy // nil: nothing limits it there, or it was sent before
	sent time.Time
}

// mirror puts a session into the shadow of a policy, or out of it.
func (t *tcpSession) mirror(s *shadow) {
	t.drive(func(t *tcpSession) {
		t.copies.end(false) // those for another policy
		t.copies = nil
		t.copyTo(s, t.describe(), time.Now())
		switch {
		case t.copies == nil || t.stage == arriving: // open will
		case t.stage == queued:
			t.copies.open(t)
		default:
			t.copies.guest.Stay(time.Now())
		}
	})
}

// copyTo has a policy get copies of what goes through the session from now on; nil
// for none. If that had them before, the session has failed over.
func (t *tcpSession) copyTo(s *shadow, who policy.Conn, now time.Time) {
	guest := t.copies.follow(s, who, now)
	if t.copies = nil; guest == nil {
		t.up.flow.Mirror(nil)
		t.down.flow.Mirror(nil)
		return
	}
	c := &copies{guest: guest, inFlight: map[uint32][]inFlight{}}
	c.own, c.back = guest.Classes()
	if t.conf.Protocol.HasMessages() {
		c.rules = s.classifier.Messages(who)
	}
	for _, rule := range c.rules {
		c.classes = append(c.classes, guest.Join(now, s.classes[rule.Class], who))
	}
	if x := t.exchange; x != nil && x.protocol == policy.HTTP { // answers come in order, of what has no copies first
		c.inFlight[0] = make([]inFlight, x.link.InFlight())
	}
	t.copies = c
	t.up.flow.Mirror(&guest.Up)
	t.down.flow.Mirror(&guest.Down)
}

// follow returns the guest of the session that is now described so; nil for none.
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

// reopen has the session, which goes on without asking in force, ask for a slot and
// connect, unless it has done so.
func (c *copies) reopen(t *tcpSession) {
	if c != nil {
		c.open(t)
		c.guest.Up.Send(time.Now(), shaper.Cost{Connections: 1})
	}
}

// open has the session ask for a slot, unless it has done so.
func (c *copies) open(t *tcpSession) {
	if c != nil {
		c.guest.Open(time.Now(), t.conf.Protocol)
	}
}

// offer offers a copy of the message that was found, and returns it if it gets an
// answer.
func (c *copies) offer(l *lane) *shaper.Copy {
	if c == nil {
		return nil
	}
	source, class := &c.guest.Down, c.back
	if l.isUp() {
		source, class = &c.guest.Up, c.classify(&l.message)
	}
	o := shaper.Offer{
		Class: class, Cost: shaper.Cost{Messages: l.message.Cost, Bytes: int64(l.size)},
		Asks: l.isUp() && l.x.asks(), Fatal: !l.message.Refusable, Alone: l.x.protocol == policy.HTTP,
		Holds: policy.Holds(int64(l.size)),
	}
	o.Waits = class != nil && l.waitsFor(class, l.message.Refusable)
	return source.Offer(time.Now(), o)
}

// classify returns the class of a message.
func (c *copies) classify(m *frame.Message) *shaper.Class {
	msg := seen(m)
	if i := c.rules.First(&msg); i >= 0 {
		return c.classes[i]
	}
	return c.own
}

// sent notes that a message has been sent to the provider, which answers it.
func (c *copies) sent(m *waitingMessage, now time.Time) {
	if c != nil {
		m.copy.Sent(now)
		c.inFlight[m.sequence] = append(c.inFlight[m.sequence], inFlight{m.copy, now})
	}
}

// answered notes that the first message in flight with a number has its answer.
func (c *copies) answered(number uint32, now time.Time) {
	if c == nil || len(c.inFlight[number]) == 0 {
		return
	}
	waiting := c.inFlight[number]
	waiting[0].copy.Answered(now)
	if len(waiting) == 1 {
		delete(c.inFlight, number)
	} else {
		c.inFlight[number] = waiting[1:]
	}
}

// expire forgets messages that were sent before a time and have no answer.
func (c *copies) expire(before, now time.Time) {
	if c == nil {
		return
	}
	for number := range c.inFlight {
		for len(c.inFlight[number]) > 0 && c.inFlight[number][0].sent.Before(before) {
			c.answered(number, now)
		}
	}
}

// end says that the session has ended: cleanly, or not.
func (c *copies) end(clean bool) {
	if c != nil {
		c.guest.End(time.Now(), clean)
		c.inFlight = nil
	}
}

// mirror is that of a tcpSession.
func (t *udpSession) mirror(s *shadow) {
	now := time.Now()
	guest := s.guest(t.describe(), now)
	if guest != nil {
		guest.Stay(now)
	}
	t.copyTo(guest, now)
}

// copyTo has the guest of a trial get copies of all datagrams from now on; nil for
// none. It ends as soon as the session has.
func (t *udpSession) copyTo(guest *shaper.Guest, now time.Time) {
	if guest == nil {
		t.up.mirror(nil)
		t.down.mirror(nil)
	} else {
		t.up.mirror(&guest.Up)
		t.down.mirror(&guest.Down)
	}
	t.guest.Swap(guest).End(now, true)
	if t.ended.Load() {
		t.guest.Swap(nil).End(now, true)
	}
}

// mirror has copies of all datagrams sent by a source of a trial, too; nil for none.
func (w *way) mirror(s *shaper.Source) { w.shadow.Store(s) }

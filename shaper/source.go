package shaper

import (
	"math"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A Source is what sends, as the trial sees it: in one direction of a session, or of
// what leaves a class with shadow. The zero Source has sent nothing.
type Source struct {
	guest *Guest // nil: nothing but a class that its bytes wait for holds it up
	class *Class // of its bytes and connections; nil: none
	twins *Copy  // that stand for its bytes, the latest first

	backlogs []*sourceBacklog // of its messages, by class
	holds    int64            // memory of those

	holder      *Copy // that waits, and which what comes next is not to overtake
	stuck       *Copy // for which that memory has no room, so that nothing more is read
	first, last *Copy // that wait for those, in order
	behind      int   // how many
}

// An Offer is a message that a session sends.
type Offer struct {
	Class *Class
	Cost  Cost
	Asks  bool  // it gets an answer: its copy is told of it
	Waits bool  // where its class has no room, it is parked; else it is refused
	Fatal bool  // the session ends if it is refused
	Alone bool  // what is sent next does not enter before it has left
	Holds int64 // memory that it takes of its connection while it waits
}

// Offer offers the copy of a message, whose class the bytes of its body are of, too. It
// returns the copy where that gets an answer.
func (s *Source) Offer(now time.Time, o Offer) *Copy {
	t := s.guest.trial
	defer t.at(now).Unlock()
	s.class = o.Class.Counting(unit.Bytes)
	if o.Class == nil || s.guest.gone {
		return nil
	}
	x := t.copy(o.Class, o.Cost)
	x.source, x.offer, x.item.Asks = s, o, o.Asks
	s.submit(x)
	if !o.Asks {
		return nil
	}
	return x
}

// Send offers a copy of what a session sends that is no message.
func (s *Source) Send(now time.Time, cost Cost) {
	g := s.guest
	defer g.trial.at(now).Unlock()
	switch {
	case s.class == nil || g.gone || cost.Connections > 0 && g.connected:
	case cost.Packets > 0:
		if !g.retries || s == &g.Up && g.acquires() {
			g.trial.each(s.class, cost, false)
		}
	default:
		g.connected = g.connected || cost.Connections > 0
		x := g.trial.copy(s.class, cost)
		x.source, x.item.Patient = s, true
		s.submit(x)
	}
}

// acquires has a client of datagrams ask for a slot, which it does not wait for.
func (g *Guest) acquires() bool {
	if g.retries = !g.slot.Acquire(g.class, g); g.retries {
		g.slot.Release()
	}
	return !g.retries
}

// submit has a copy enter its class, unless something holds it up.
func (s *Source) submit(x *Copy) {
	if !s.waits(x) {
		s.enter(x)
		return
	}
	if x.isBytes() && s.first != nil && s.last.class == x.class && s.last.isBytes() {
		s.last.item.Cost.Bytes = min(s.last.item.Cost.Bytes+x.item.Cost.Bytes, math.MaxInt64/2)
		x.end()
		return
	}
	if s.behind >= mostBehind {
		x.class.tally.overlimit()
		x.end()
		return
	}
	if s.first == nil {
		s.first = x
	} else {
		s.last.next = x
	}
	s.last = x
	s.behind++
}

// mostBehind bounds the copies that a source holds up; of what comes then it is only
// counted that it would wait.
const mostBehind = 1 << 12

// waits reports whether something holds a copy up: not the bytes before it, where it
// is bytes of the same class.
func (s *Source) waits(x *Copy) bool {
	behind := s.holder != nil && !(x.isBytes() && s.holder.stream && s.holder.class == x.class)
	return s.guest.waits() || behind || s.stuck != nil || s.first != nil
}

// isBytes reports whether the copy is of bytes of a stream, which a twin stands for.
func (x *Copy) isBytes() bool {
	return x.offer.Class == nil && x.item.Cost.Bytes > 0 && x.class.Counts(unit.Bytes)
}

// enter has a copy enter its class, which nothing holds up.
func (s *Source) enter(x *Copy) {
	if x.isBytes() {
		s.in(x.trial, x.class).send(x.item.Cost.Bytes)
		x.end()
		return
	}
	if x.offer.Class == nil {
		x.enter()
		return
	}
	b := s.of(x.class)
	switch room := b.isEmpty() || s.holds+x.offer.Holds <= int64(policy.ConnectionHolds); {
	case !room && x.offer.Waits:
		s.guest.add(x)
		s.stuck = x
	case !room || b.first != nil: // else it would overtake
		x.full(stats.QueueFull)
	default:
		x.item.Patient = x.offer.Waits && b.waiting == 0
		x.enter()
	}
}

// sourceBacklog is the messages of a source that are kept for one class, as package conn
// keeps them: those in its queue, and those parked until one of the former leaves.
type sourceBacklog struct {
	class       *Class
	waiting     int   // in the queue
	first, last *Copy // parked, in order
}

func (b *sourceBacklog) isEmpty() bool { return b.waiting == 0 && b.first == nil }

// of returns what is kept for a class.
func (s *Source) of(c *Class) *sourceBacklog {
	for _, b := range s.backlogs {
		if b.class == c {
			return b
		}
	}
	b := &sourceBacklog{class: c}
	s.backlogs = append(s.backlogs, b)
	return b
}

// keep notes that a message waits, in the queue of its class or parked.
func (s *Source) keep(x *Copy) {
	s.holds += x.offer.Holds
	if x.offer.Alone {
		s.holder = x
	}
}

// park keeps a message for which its class has no room, behind others.
func (s *Source) park(x *Copy) {
	b := s.of(x.class)
	if b.first == nil {
		b.first = x
	} else {
		b.last.next = x
	}
	b.last = x
	s.guest.add(x)
	s.keep(x)
}

// resume has parked messages enter their class, as far as it has room. The first needs
// none if no other of the source waits there.
func (s *Source) resume(b *sourceBacklog) {
	for b.first != nil {
		x := b.first
		x.item.Patient = b.waiting == 0
		verdict := x.ask()
		if verdict == Full || verdict == TooLong {
			return
		}
		b.first, x.next = x.next, nil
		s.holds -= x.offer.Holds
		x.judge(verdict)
	}
}

// drop forgets what waits.
func (s *Source) drop() {
	s.first, s.stuck, s.backlogs, s.holds, s.behind = nil, nil, nil, 0, 0
}

// next goes on after something has left.
func (s *Source) next() {
	if s != nil && s.guest != nil {
		s.goOn()
		s.guest.tidy()
	}
}

// goOn has enter what was held up, as far as it may.
func (s *Source) goOn() {
	if x := s.stuck; x != nil && !s.guest.waits() {
		s.stuck = nil
		s.enter(x)
	}
	for s.first != nil && !s.guest.waits() && s.holder == nil && s.stuck == nil {
		x := s.first
		s.first, x.next = x.next, nil
		s.behind--
		s.enter(x)
	}
}

// mostOfSource bounds the classes that remember a source, of which those that it has
// left never come again: as many as there are on a path.
const mostOfSource = 8

// in returns the copy that stands for the bytes of the source in a class.
func (s *Source) in(t *Trial, c *Class) *Copy {
	at := &s.twins
	for n := 1; *at != nil; at, n = &(*at).next, n+1 {
		if (*at).class == c {
			return *at
		}
		if n == mostOfSource-1 {
			(*at).next = nil
		}
	}
	x := &Copy{trial: t, class: c, stream: true, next: s.twins}
	x.item = Item{Owner: x, Patient: true}
	if s.guest != nil {
		x.source = s
	}
	s.twins = x
	return x
}

package shaper

import (
	"math"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A Source is what sends, as a trial sees it: one direction of a session, or what leaves a
// class with shadow. The zero Source has sent nothing. The lock of the trial guards it.
type Source struct {
	guest *Guest // nil: only the class that its bytes wait for holds it up
	class *Class // of its bytes and connections; nil: none
	twins *Copy  // stand for its bytes, one for each class, the latest first

	backlogs []*sourceBacklog // of its messages, by class
	holds    int64            // memory that those take

	holder      *Copy // waits, and nothing that comes later overtakes it
	stuck       *Copy // there is no memory for it, so that nothing more is read
	first, last *Copy // held up by one of these, in order
	behind      int32 // how many are held up
	swallows    bool  // its last message was refused, and the body of that counts nowhere
}

// An Offer is a message that a session sends.
type Offer struct {
	Class *Class
	Cost  Cost
	Asks  bool  // it gets an answer, which its copy is told of
	Waits bool  // if its class has no room, it is parked, and not refused
	Fatal bool  // the session ends if it is refused
	Alone bool  // what comes later does not enter before it has left
	Holds int64 // memory of its connection that it takes while it waits
}

// submit lets a copy enter its class, unless something holds it up.
func (s *Source) submit(x *Copy) {
	if !s.isHeldUp(x) {
		s.enter(x)
		return
	}
	if x.isBytes() && s.first != nil && s.last.class == x.class && s.last.isBytes() {
		s.last.item.Cost.Bytes = min(s.last.item.Cost.Bytes+x.item.Cost.Bytes, math.MaxInt64/2)
		x.end()
		return
	}
	if s.behind >= mostBehind || x.trial.behind >= mostCopies {
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
	s.countBehind(1)
}

// countBehind counts so many more copies that are held up.
func (s *Source) countBehind(n int32) {
	s.behind += n
	s.guest.trial.behind += int(n)
}

// mostBehind bounds the copies of a source that are held up, mostCopies those of all
// sources of a trial. What comes beyond it only counts as something that would wait.
const mostBehind = 1 << 12

// isHeldUp reports whether something holds a copy up. Bytes do not hold up bytes of the
// same class.
func (s *Source) isHeldUp(x *Copy) bool {
	behind := s.holder != nil && !(x.isBytes() && s.holder.stream && s.holder.class == x.class)
	return s.guest.isWaiting() || behind || s.stuck != nil || s.first != nil
}

// isBytes reports whether the copy is one of bytes of a stream, for which a twin stands.
func (x *Copy) isBytes() bool {
	return x.offer.Class == nil && x.item.Cost.Bytes > 0 && x.class.Counts(unit.Bytes)
}

// enter lets a copy that nothing holds up enter its class.
func (s *Source) enter(x *Copy) {
	if x.isBytes() {
		if !s.swallows {
			s.twin(x.trial, x.class).send(x.item.Cost.Bytes)
		}
		x.end()
		return
	}
	if x.offer.Class == nil {
		x.enter()
		return
	}
	s.swallows = false
	b := s.backlogFor(x.class)
	switch room := b.isEmpty() || s.holds+x.offer.Holds <= int64(policy.ConnectionHolds); {
	case !room && x.offer.Waits:
		s.guest.add(x)
		s.stuck = x
	case !room || b.first != nil: // to enter would be to overtake
		x.full(stats.QueueFull)
	default:
		x.item.Patient = x.offer.Waits && b.waiting == 0
		x.enter()
	}
}

// A sourceBacklog is the messages of a source that wait for one class, as package conn
// keeps them: those in the queue of the class, and those parked until one of these leaves.
type sourceBacklog struct {
	class       *Class
	waiting     int   // in the queue
	first, last *Copy // parked, in order
}

func (b *sourceBacklog) isEmpty() bool { return b.waiting == 0 && b.first == nil }

// backlogFor returns what waits for a class.
func (s *Source) backlogFor(c *Class) *sourceBacklog {
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

// park implements sender: the message waits behind those parked before.
func (s *Source) park(x *Copy) {
	b := s.backlogFor(x.class)
	if b.first == nil {
		b.first = x
	} else {
		b.last.next = x
	}
	b.last = x
	s.guest.add(x)
	s.keep(x)
}

// resume lets parked messages enter their class as far as there is room. The first needs
// no room if no other message of the source waits there.
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

// waits implements sender.
func (s *Source) waits(x *Copy) {
	s.guest.add(x)
	switch {
	case x.item.Cost.Connections > 0:
		s.guest.opens = x
	case x.stream:
		s.holder = x
	case x.offer.Class != nil:
		s.keep(x)
		s.backlogFor(x.class).waiting++
	}
}

// lost implements sender.
func (s *Source) lost(x *Copy) {
	if x.offer.Class != nil {
		s.swallows = true
	}
	if x.stream || x.offer.Fatal || x.item.Cost.Connections > 0 {
		s.guest.overflow()
	}
}

// leaves implements sender.
func (s *Source) leaves(x *Copy) {
	switch {
	case x.stream:
	case s.guest.opens == x:
		s.guest.opens = nil
	default:
		s.backlogFor(x.class).waiting--
		s.holds -= x.offer.Holds
	}
}

// left implements sender.
func (s *Source) left(x *Copy) {
	switch {
	case x.stream:
		s.goOn()
	case x.item.Cost.Connections > 0:
		s.guest.goOn()
	default:
		s.resume(s.backlogFor(x.class))
		s.goOn()
	}
	s.guest.tidy()
}

// asked implements sender.
func (s *Source) asked(x *Copy) {
	s.guest.add(x)
	s.release(x)
}

// ended implements sender.
func (s *Source) ended(x *Copy) {
	s.release(x)
	s.guest.remove(x)
}

// answered implements sender.
func (s *Source) answered() { s.guest.tidy() }

// release lets what a copy held up go on.
func (s *Source) release(x *Copy) {
	if s.holder == x {
		s.holder = nil
	}
}

// drop forgets what waits.
func (s *Source) drop() {
	s.first, s.stuck, s.backlogs, s.holds = nil, nil, nil, 0
	s.countBehind(-s.behind)
}

// goOn lets enter what was held up, as far as it may.
func (s *Source) goOn() {
	if x := s.stuck; x != nil && !s.guest.isWaiting() {
		s.stuck = nil
		s.enter(x)
	}
	for s.first != nil && !s.guest.isWaiting() && s.holder == nil && s.stuck == nil {
		x := s.first
		s.first, x.next = x.next, nil
		s.countBehind(-1)
		s.enter(x)
	}
}

// mostTwins bounds the twins of a source: as many as there are classes on a path. Some are
// of classes that the source has left for good.
const mostTwins = 8

// twin returns the copy that stands for the bytes of the source in a class.
func (s *Source) twin(t *Trial, c *Class) *Copy {
	at := &s.twins
	for n := 1; *at != nil; at, n = &(*at).next, n+1 {
		if (*at).class == c {
			return *at
		}
		if n == mostTwins-1 {
			(*at).next = nil
		}
	}
	x := &Copy{trial: t, class: c, stream: true, next: s.twins}
	x.item = Item{Owner: x, Patient: true}
	if s.guest != nil {
		x.sender = s
	}
	s.twins = x
	return x
}

// goOn lets enter what the session has sent, as far as it may.
func (g *Guest) goOn() {
	g.Up.goOn()
	g.Down.goOn()
}

// isWaiting reports whether nothing that the session sends may enter yet.
func (g *Guest) isWaiting() bool { return g.queued || g.opens != nil }

// tidy ends the guest when nothing more is to be expected of it.
func (g *Guest) tidy() {
	if g.ending && !g.gone && len(g.copies) == 0 && g.Up.first == nil && g.Down.first == nil {
		g.leave()
	}
}

// overflow ends the guest: its session would have been refused something that it cannot do
// without, and would have lost what waits.
func (g *Guest) overflow() {
	for _, x := range g.copies {
		parked := x.offer.Class != nil && x.left.IsZero() && x != g.Up.stuck && x != g.Down.stuck
		if x.waits || parked {
			x.class.tally.lose(stats.QueueFull, &x.item.Cost)
		}
	}
	g.leave()
}

// leave ends the guest, with all that waits: its session has ended, or would have been
// refused.
func (g *Guest) leave() {
	if g.gone {
		return
	}
	g.gone, g.queued = true, false
	g.trial.orphans -= g.orphans
	now := g.trial.latest
	for len(g.copies) > 0 {
		g.copies[0].abandon(now)
	}
	g.Up.drop()
	g.Down.drop()
	g.trial.unschedule(&g.patience)
	g.slot.Release()
	for _, c := range g.joined {
		c.Quit(now)
		g.trial.expect(c)
	}
	g.joined = nil
}

// add notes a copy that waits, or whose answer does.
func (g *Guest) add(x *Copy) {
	if x.place == 0 {
		g.copies = append(g.copies, x)
		x.place = len(g.copies)
	}
}

func (g *Guest) remove(x *Copy) {
	if x.place == 0 {
		return
	}
	last := len(g.copies) - 1
	g.copies[x.place-1] = g.copies[last]
	g.copies[x.place-1].place = x.place
	g.copies[last], g.copies = nil, g.copies[:last]
	x.place = 0
}

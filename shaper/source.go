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
	guest  *Guest // nil: only the class that its bytes wait for holds it up
	class  *Class // of its bytes and connections; nil: none
	joined *Class // the bucket of its last message, which it has joined; nil: none
	key    Key    // with which it has joined that
	twins  *Copy  // a list of those that stand for its bytes, one for each class, the latest first

	// The messages of the source that wait, and the memory of the connection that they take.
	backlogs map[*Class]*sourceBacklog
	memory   int64 // bytes

	// What holds the source up, and the copies that are blocked meanwhile, in order.
	blocker                   *Copy // waits, and nothing overtakes it; nil: none
	stuck                     *Copy // the connection has no memory for it, so nothing more is read; nil: none
	firstBlocked, lastBlocked *Copy // a list; see Copy.next
	blocked                   int32 // how many copies are blocked
	skipsBody                 bool  // the last message was refused, so its body counts nowhere
}

// An Offer is a message that a session sends.
type Offer struct {
	Class *Class // nil: no class limits it
	Key   Key    // if messages tell the buckets or groups of Class apart
	Cost  Cost
	Asks  bool  // it gets an answer; the caller tells the copy of it
	Waits bool  // if its class has no room, it is parked and not refused
	Fatal bool  // the session ends if it is refused
	Alone bool  // nothing that comes later enters before it has left
	Holds int64 // bytes of its connection's memory that it takes while it waits
}

// bucket returns the class that a message enters: that of the offer, or the bucket of its key.
// The copy of the message joins the bucket, and so does the source, for what follows.
func (s *Source) bucket(o Offer) *Class {
	s.quitBucket()
	if !o.Class.Messages().HaveKeys() {
		return o.Class
	}
	bucket := o.Class.JoinKey(s.guest.trial.latest, o.Key)
	s.joined, s.key = o.Class.JoinKey(s.guest.trial.latest, o.Key), o.Key
	return bucket
}

// quitBucket quits the bucket of the last message.
func (s *Source) quitBucket() {
	if s.joined != nil {
		s.joined.QuitKey(s.guest.trial.latest, s.key)
		s.guest.trial.expect(s.joined)
	}
	s.joined = nil
}

// submit lets a copy enter its class. If something holds it up, it joins the blocked
// copies.
func (s *Source) submit(x *Copy) {
	if !s.isBlocked(x) {
		s.enter(x)
		return
	}
	if x.isBytes() && s.firstBlocked != nil && s.lastBlocked.class == x.class && s.lastBlocked.isBytes() {
		s.lastBlocked.item.Cost.Bytes = min(s.lastBlocked.item.Cost.Bytes+x.item.Cost.Bytes, math.MaxInt64/2)
		x.end()
		return
	}
	if s.blocked >= maxBlocked || x.trial.blocked >= maxCopies {
		x.class.tally.overlimit()
		x.end()
		return
	}
	if s.firstBlocked == nil {
		s.firstBlocked = x
	} else {
		s.lastBlocked.next = x
	}
	s.lastBlocked = x
	s.countBlocked(1)
}

// countBlocked counts n more blocked copies.
func (s *Source) countBlocked(n int32) {
	s.blocked += n
	s.guest.trial.blocked += int(n)
}

// maxBlocked bounds the blocked copies of a source; maxCopies bounds those of all sources
// of a trial. A copy beyond that only counts as one that would wait.
const maxBlocked = 1 << 12

// isBlocked reports whether something holds a copy up. Bytes do not hold up bytes of the
// same class.
func (s *Source) isBlocked(x *Copy) bool {
	behind := s.blocker != nil && !(x.isBytes() && s.blocker.isTwin && s.blocker.class == x.class)
	return s.guest.isWaiting() || behind || s.stuck != nil || s.firstBlocked != nil
}

// isBytes reports whether the copy is of bytes of a stream, for which a twin stands.
func (x *Copy) isBytes() bool {
	return x.offer.Class == nil && x.item.Cost.Bytes > 0 && x.class.Counts(unit.Bytes)
}

// enter lets a copy that nothing holds up enter its class.
func (s *Source) enter(x *Copy) {
	if x.isBytes() {
		if !s.skipsBody {
			s.twin(x.trial, x.class).send(x.item.Cost.Bytes)
		}
		x.end()
		return
	}
	if x.offer.Class == nil {
		x.enter()
		return
	}
	s.skipsBody = false
	b := s.backlogFor(x.class)
	switch room := b.isEmpty() || s.memory+x.offer.Holds <= int64(policy.ConnectionHolds); {
	case !room && x.offer.Waits:
		s.guest.add(x)
		s.stuck = x
	case !room || b.firstParked != nil: // it must not overtake parked messages
		x.overflow(stats.QueueFull)
	default:
		x.item.Patient = x.offer.Waits && b.waiting == 0
		x.enter()
	}
}

// A sourceBacklog holds the messages of a source that wait for one class, as package exchange
// keeps them: some are in the queue of the class, the others are parked until one of those
// leaves.
type sourceBacklog struct {
	waiting                 int   // how many are in the queue
	firstParked, lastParked *Copy // the parked ones, in order
}

func (b *sourceBacklog) isEmpty() bool { return b.waiting == 0 && b.firstParked == nil }

// backlogFor returns the backlog of a class.
func (s *Source) backlogFor(c *Class) *sourceBacklog {
	b := s.backlogs[c]
	if b == nil {
		if s.backlogs == nil {
			s.backlogs = map[*Class]*sourceBacklog{}
		}
		b = &sourceBacklog{}
		s.backlogs[c] = b
	}
	return b
}

// noteWaiting notes that a message waits, in the queue of its class or parked.
func (s *Source) noteWaiting(x *Copy) {
	s.memory += x.offer.Holds
	if x.offer.Alone {
		s.blocker = x
	}
}

// park implements sender. The message waits behind those parked before.
func (s *Source) park(x *Copy) {
	b := s.backlogFor(x.class)
	if b.firstParked == nil {
		b.firstParked = x
	} else {
		b.lastParked.next = x
	}
	b.lastParked = x
	s.guest.add(x)
	s.noteWaiting(x)
}

// resume lets parked messages enter their class as far as there is room. A message needs no
// room if no other message of the source waits in the queue.
func (s *Source) resume(b *sourceBacklog) {
	for b.firstParked != nil {
		x := b.firstParked
		x.item.Patient = b.waiting == 0
		verdict := x.ask()
		if verdict == Full || verdict == TooLong {
			return
		}
		b.firstParked, x.next = x.next, nil
		s.memory -= x.offer.Holds
		x.act(verdict)
	}
}

// waits implements sender.
func (s *Source) waits(x *Copy) {
	s.guest.add(x)
	switch {
	case x.item.Cost.Connections > 0:
		s.guest.opening = x
	case x.isTwin:
		s.blocker = x
	case x.offer.Class != nil:
		s.noteWaiting(x)
		s.backlogFor(x.class).waiting++
	}
}

// lost implements sender.
func (s *Source) lost(x *Copy) {
	if x.offer.Class != nil {
		s.skipsBody = true
	}
	if x.isTwin || x.offer.Fatal || x.item.Cost.Connections > 0 {
		s.guest.refuse()
	}
}

// leaves implements sender.
func (s *Source) leaves(x *Copy) {
	switch {
	case x.isTwin:
	case s.guest.opening == x:
		s.guest.opening = nil
	default:
		s.backlogFor(x.class).waiting--
		s.memory -= x.offer.Holds
	}
}

// left implements sender.
func (s *Source) left(x *Copy) {
	switch {
	case x.isTwin:
		s.drive()
	case x.item.Cost.Connections > 0:
		s.guest.drive()
	default:
		if b := s.backlogs[x.class]; b != nil { // else it was that of a bucket, and the last of it
			s.resume(b)
		}
		s.drive()
	}
	s.guest.endIfDone()
}

// asked implements sender.
func (s *Source) asked(x *Copy) {
	s.guest.add(x)
	s.unblock(x)
}

// ended implements sender.
func (s *Source) ended(x *Copy) {
	s.unblock(x)
	s.guest.remove(x)
	if b := s.backlogs[x.class]; x.joined && b != nil && b.isEmpty() {
		delete(s.backlogs, x.class)
	}
}

// answered implements sender.
func (s *Source) answered() { s.guest.endIfDone() }

// unblock says that a copy holds nothing up any more.
func (s *Source) unblock(x *Copy) {
	if s.blocker == x {
		s.blocker = nil
	}
}

// forget forgets all messages and copies that wait.
func (s *Source) forget() {
	for x := s.firstBlocked; x != nil; x = x.next {
		x.quitBucket()
	}
	s.firstBlocked, s.stuck, s.backlogs, s.memory = nil, nil, nil, 0
	s.countBlocked(-s.blocked)
}

// drive lets blocked copies enter their classes as far as they may.
func (s *Source) drive() {
	if x := s.stuck; x != nil && !s.guest.isWaiting() {
		s.stuck = nil
		s.enter(x)
	}
	for s.firstBlocked != nil && !s.guest.isWaiting() && s.blocker == nil && s.stuck == nil {
		x := s.firstBlocked
		s.firstBlocked, x.next = x.next, nil
		s.countBlocked(-1)
		s.enter(x)
	}
}

// maxTwins bounds the twins of a source: as many as a path may have classes. Some may be of
// classes that the source has left for good.
const maxTwins = 8

// twin returns the copy that stands for the bytes of the source in a class.
func (s *Source) twin(t *Trial, c *Class) *Copy {
	at := &s.twins
	for n := 1; *at != nil; at, n = &(*at).next, n+1 {
		if (*at).class == c {
			return *at
		}
		if n == maxTwins-1 {
			(*at).next = nil
		}
	}
	x := &Copy{trial: t, class: c, isTwin: true, next: s.twins}
	x.item = Item{Owner: x, Patient: true}
	if s.guest != nil {
		x.sender = s
	}
	s.twins = x
	return x
}

// drive lets what the session has sent enter as far as it may.
func (g *Guest) drive() {
	g.Up.drive()
	g.Down.drive()
}

// isWaiting reports whether the session waits for its permit, or its connection for its
// class. Until then, nothing that it sends may enter.
func (g *Guest) isWaiting() bool { return g.waitsForPermit || g.opening != nil }

// endIfDone ends the guest if its session has ended and nothing more can come of it.
func (g *Guest) endIfDone() {
	if g.ending && !g.gone && len(g.copies) == 0 && g.Up.firstBlocked == nil && g.Down.firstBlocked == nil {
		g.finish()
	}
}

// refuse ends the guest: its session would have been refused something that it cannot do
// without, and would have lost what waits.
func (g *Guest) refuse() {
	for _, x := range g.copies {
		parked := x.offer.Class != nil && x.leftAt.IsZero() && x != g.Up.stuck && x != g.Down.stuck
		if x.waits || parked {
			x.class.tally.lose(stats.QueueFull, &x.item.Cost)
		}
	}
	g.finish()
}

// finish ends the guest and all that waits: its session has ended, or would have been
// refused.
func (g *Guest) finish() {
	if g.gone {
		return
	}
	g.gone, g.waitsForPermit = true, false
	g.trial.orphans -= g.orphans
	now := g.trial.latest
	for len(g.copies) > 0 {
		g.copies[0].abandon(now)
	}
	g.Up.forget()
	g.Down.forget()
	g.Up.quitBucket()
	g.trial.unschedule(&g.timeout)
	g.permit.Release()
	for _, c := range g.joined {
		c.Quit(now)
		g.trial.expect(c)
	}
	g.joined = nil
}

// add adds a copy that waits, or whose answer has not come, to copies.
func (g *Guest) add(x *Copy) {
	if x.guestIndex == 0 {
		g.copies = append(g.copies, x)
		x.guestIndex = len(g.copies)
	}
}

// remove takes a copy out of copies, if it is there.
func (g *Guest) remove(x *Copy) {
	if x.guestIndex == 0 {
		return
	}
	last := len(g.copies) - 1
	g.copies[x.guestIndex-1] = g.copies[last]
	g.copies[x.guestIndex-1].guestIndex = x.guestIndex
	g.copies[last], g.copies = nil, g.copies[:last]
	x.guestIndex = 0
}

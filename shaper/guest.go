package shaper

import (
	"math"
	"slices"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A Guest is a session in a trial. It waits for a slot as it would, and for its class
// where that counts connections: what it sends meanwhile enters afterwards. When the
// session has really ended, the guest keeps its slot until what it has sent would have
// left and been answered.
type Guest struct {
	// Up is what the session sends to the upstream, Down what comes back.
	Up, Down Source

	trial  *Trial
	class  *Class // towards the upstream; nil: the trial knows no such session
	slot   Slot
	opens  *Copy // the connection, which waits for its class
	copies []*Copy
	joined []*Class

	queued  bool // waits for its slot
	gone    bool // would have been refused, or has ended
	ending  bool // has really ended
	retries bool // each of its datagrams asks for a slot, until it has got one

	patience event
}

// A Source is what sends, as the trial sees it: in one direction of a session, or of
// what leaves a class with shadow. The zero Source has sent nothing.
type Source struct {
	guest *Guest // nil: nothing but a class that its bytes wait for holds it up
	class *Class // of its bytes and connections; nil: none
	twins *Copy  // that stand for its bytes, the latest first

	holder      *Copy // that waits, and which what comes next is not to overtake
	full        *Copy // for which its class has no room, and which waits for that
	first, last *Copy // that wait for those, in order
	behind      int   // how many
}

// An Offer is a message that a session sends.
type Offer struct {
	Class *Class
	Cost  Cost
	Asks  bool // it gets an answer: its copy is told of it
	Waits bool // where its class has no room, whoever sends is made to wait; else it is refused
	Fatal bool // the session ends if it is refused
	Alone bool // what is sent next does not enter before it has left
}

// Guest returns the guest of a session, which is to be in two classes of the trial;
// nil for none. See Join for that of the message rules.
func (t *Trial) Guest(now time.Time, who policy.Conn, up, down *Class) *Guest {
	g := &Guest{trial: t}
	g.class = g.Join(now, up, who)
	g.Up = Source{guest: g, class: g.class}
	g.Down = Source{guest: g, class: g.Join(now, down, who)}
	return g
}

// Join returns the class, or the bucket of it, that the session's messages enter. The
// guest quits it when it is gone.
func (g *Guest) Join(now time.Time, c *Class, who policy.Conn) *Class {
	if c == nil {
		return nil
	}
	defer g.trial.at(now).Unlock()
	if g.gone {
		return nil
	}
	joined := c.Join(g.trial.latest, who)
	if joined != c {
		g.joined = append(g.joined, joined)
	}
	return joined
}

// Open has the session ask for a slot, as it would under its protocol.
func (g *Guest) Open(now time.Time, protocol policy.Protocol) {
	defer g.trial.at(now).Unlock()
	if g.retries = protocol == policy.UDP; g.retries || g.class == nil || g.gone || g.slot.Acquire(g.class, g) {
		return
	}
	conf := g.class.Policy()
	switch {
	case conf.OverflowFor(protocol) != policy.Wait:
		g.class.lose(stats.QueueFull, &Cost{})
		g.leave()
	default:
		g.queued = true
		if g.patience.of = g; conf.MaxWait > 0 {
			g.trial.happensAt(g.trial.latest.Add(time.Duration(conf.MaxWait)), &g.patience)
		}
	}
}

// Stay gives a session a slot that was open before the trial began, even if there is
// none to be had.
func (g *Guest) Stay(now time.Time) {
	defer g.trial.at(now).Unlock()
	if g.class != nil && !g.gone {
		g.slot.Hold(g.class)
	}
}

// happen ends a wait for a slot that takes too long.
func (g *Guest) happen() {
	g.class.lose(stats.MaxWait, &Cost{})
	g.leave()
}

// Acquired implements SlotOwner. What the session has sent meanwhile enters now.
func (g *Guest) Acquired() {
	g.queued = false
	g.trial.forget(&g.patience)
	g.goOn()
	g.tidy()
}

// goOn has enter what the session has sent, as far as it may.
func (g *Guest) goOn() {
	g.Up.goOn()
	g.Down.goOn()
}

// waits reports whether nothing of the session may enter yet.
func (g *Guest) waits() bool { return g.queued || g.opens != nil }

// End says that the session has really ended: cleanly, so that what it has sent goes
// on, or not.
func (g *Guest) End(now time.Time, clean bool) {
	if g == nil {
		return
	}
	defer g.trial.at(now).Unlock()
	if g.ending = true; !clean {
		g.leave()
	}
	for _, x := range slices.Clone(g.copies) {
		x.neverAnswered(now)
	}
	for x := g.Up.first; x != nil; x = x.next {
		x.neverAnswered(now)
	}
	g.tidy()
}

// neverAnswered has the copy wait for no answer any more, unless that has come.
func (x *Copy) neverAnswered(now time.Time) {
	if x.item.Asks && !x.answered && !x.over {
		x.answeredAt(now)
	}
}

// tidy ends the guest when nothing more is to be expected of it.
func (g *Guest) tidy() {
	if g.ending && !g.gone && len(g.copies) == 0 && g.Up.first == nil && g.Down.first == nil {
		g.leave()
	}
}

// leave ends the guest, whose session has ended or would have been refused, with all
// that waits.
func (g *Guest) leave() {
	if g.gone {
		return
	}
	g.gone, g.queued = true, false
	now := g.trial.latest
	for len(g.copies) > 0 {
		g.copies[0].abandon(now)
	}
	g.Up.first, g.Down.first = nil, nil
	g.trial.forget(&g.patience)
	g.slot.Release()
	for _, c := range g.joined {
		c.Quit(now)
		g.trial.expect(c)
	}
	g.joined = nil
}

// abandon takes the copy out of its class, or says that it will get no answer.
func (x *Copy) abandon(now time.Time) {
	x.rest = 0
	switch {
	case x.waits:
		x.waits = false
		x.class.Cancel(now, &x.item)
		x.trial.expect(x.class)
	case x.item.Asks && !x.left.IsZero():
		x.trial.forget(&x.answer)
		x.class.Answered(now, false)
		x.trial.expect(x.class)
	}
	x.end()
}

// add notes a copy that something is to be expected of.
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
	case s.class == nil || g.gone:
	case cost.Packets > 0:
		if !g.retries || s == &g.Up && g.acquires() {
			g.trial.each(s.class, cost, false)
		}
	default:
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
		x.class.Stats.Overlimits.Add(1)
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
	return s.guest.waits() || behind || s.full != nil || s.first != nil
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
	if x.offer.Class != nil {
		x.item.Patient = x.offer.Waits && !s.waitsIn(x.class)
	}
	x.enter()
}

// waitsIn reports whether a message of the source waits in a class.
func (s *Source) waitsIn(c *Class) bool {
	for _, x := range s.guest.copies {
		if x.source == s && x.waits && x.class == c {
			return true
		}
	}
	return false
}

// goOn has enter what was held up, as far as it may.
func (s *Source) goOn() {
	if x := s.full; x != nil && !s.guest.waits() {
		s.full = nil
		s.enter(x)
	}
	for s.first != nil && !s.guest.waits() && s.holder == nil && s.full == nil {
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

// Classes returns the classes of the session, there and back; nil for none.
func (g *Guest) Classes() (up, down *Class) { return g.class, g.Down.class }

package shaper

import (
	"slices"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A Guest is a session in a trial. It waits for a permit as the session would, and for its
// class if that counts connections. What it sends meanwhile enters afterwards. When the
// session has really ended, the guest keeps its permit until all that it has sent would
// have left and been answered. The lock of its trial guards it.
type Guest struct {
	// Up is what the session sends to the upstream, Down what comes back.
	Up, Down Source

	trial   *Trial
	class   *Class // towards the upstream; nil: no class of the trial limits the session
	permit  Permit // in class
	speaks  policy.Protocol
	opening *Copy    // the connection, while it waits for its class; nil: it does not
	copies  []*Copy  // those that wait, or whose answer has not come
	joined  []*Class // buckets to quit
	orphans int      // copies that it had when the session ended
	timeout event    // it has waited for its permit for max_wait

	// How far it is.
	asked          bool // it has asked for its permit
	asksAgain      bool // each datagram asks for a permit, until it has got one
	waitsForPermit bool
	connected      bool // the connection has entered its class
	ending         bool // the session has really ended
	gone           bool // it would have been refused, or has ended
}

// Guest returns the guest of a session that is in two classes of the trial; nil for none.
// Its messages may be in other classes; see Join.
func (t *Trial) Guest(now time.Time, who policy.Conn, up, down *Class) *Guest {
	g := &Guest{trial: t}
	g.class = g.Join(now, up, who)
	g.Up = Source{guest: g, class: g.class}
	g.Down = Source{guest: g, class: g.Join(now, down, who)}
	return g
}

// Join returns the class that messages of the session enter: c, or the bucket for the
// session. The guest quits the bucket when it ends.
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

// Follow moves a session that fails over, and has sent nothing yet, to two other classes.
// It returns false if the class towards the upstream changes. Then the session needs
// another guest, which asks for a permit again. A session that would have been refused
// stays refused.
func (g *Guest) Follow(now time.Time, who policy.Conn, up, down *Class) bool {
	up, down = g.Join(now, up, who), g.Join(now, down, who)
	defer g.trial.at(now).Unlock()
	if !g.gone && up == g.class {
		g.Down.class = down
	}
	return g.gone || up == g.class
}

// Open asks for a permit, as a session of this protocol would. A second call does nothing.
func (g *Guest) Open(now time.Time, protocol policy.Protocol) {
	defer g.trial.at(now).Unlock()
	if g.asked {
		return
	}
	g.asked, g.speaks = true, protocol
	if g.asksAgain = protocol == policy.UDP; g.asksAgain || g.class == nil || g.gone || g.permit.Acquire(g.class, g) {
		return
	}
	conf := g.class.Policy()
	switch {
	case conf.OverflowFor(protocol) != policy.Wait:
		g.class.tally.lose(stats.QueueFull, &Cost{})
		g.finish()
	default:
		g.waitsForPermit = true
		if g.timeout.of = g; conf.MaxWait > 0 {
			g.trial.schedule(g.trial.latest.Add(time.Duration(conf.MaxWait)), &g.timeout)
		}
	}
}

// Stay gives a permit to a session that was open before the trial began, even if no permit is
// free.
func (g *Guest) Stay(now time.Time) {
	defer g.trial.at(now).Unlock()
	g.asked, g.connected = true, true
	if g.class != nil && !g.gone {
		g.permit.Give(g.class)
	}
}

// happen is the event that the guest has waited too long for a permit. It ends the guest.
func (g *Guest) happen() {
	g.class.tally.lose(stats.MaxWait, &Cost{})
	g.finish()
}

// Acquired implements PermitOwner. What the session has sent meanwhile enters now.
func (g *Guest) Acquired() {
	g.waitsForPermit = false
	g.trial.unschedule(&g.timeout)
	g.drive()
	g.endIfDone()
}

// Protocol implements PermitOwner.
func (g *Guest) Protocol() policy.Protocol { return g.speaks }

// End says that the session has really ended. If it ended cleanly, what it has sent still
// enters and leaves. A nil Guest does nothing.
func (g *Guest) End(now time.Time, clean bool) {
	if g == nil {
		return
	}
	defer g.trial.at(now).Unlock()
	if g.ending = true; !clean {
		g.finish()
	}
	for _, x := range slices.Clone(g.copies) {
		x.neverAnswered(now)
	}
	for x := g.Up.firstBlocked; x != nil; x = x.next {
		x.neverAnswered(now)
	}
	if g.endIfDone(); !g.gone {
		g.outlive()
	}
}

// outlive lets the guest outlast its session. If there are already too many copies of
// sessions that have ended, it ends the guest: nothing else bounds these copies.
func (g *Guest) outlive() {
	n := len(g.copies) + int(g.Up.blocked+g.Down.blocked)
	if g.trial.orphans+n > maxCopies {
		g.finish()
		return
	}
	g.orphans = n
	g.trial.orphans += n
}

// Classes returns the classes of the session: towards the upstream, and back. nil means
// none.
func (g *Guest) Classes() (up, down *Class) { return g.class, g.Down.class }

// Offer offers a copy of a message. The bytes that follow are its body, and enter its class.
// Offer returns the copy if it gets an answer, else nil.
func (s *Source) Offer(now time.Time, o Offer) *Copy {
	t := s.guest.trial
	defer t.at(now).Unlock()
	if s.guest.gone {
		s.class = nil
		return nil
	}
	class := s.bucket(o)
	if s.class = class.Counting(unit.Bytes); class == nil {
		return nil
	}
	x := t.copy(class, o.Cost)
	x.sender, x.offer, x.item.Asks, x.joined = s, o, o.Asks, class != o.Class
	s.submit(x)
	if !o.Asks {
		return nil
	}
	return x
}

// Send offers a copy of something that is not a message: bytes, datagrams, a connection.
func (s *Source) Send(now time.Time, cost Cost) {
	g := s.guest
	defer g.trial.at(now).Unlock()
	switch {
	case s.class == nil || g.gone || cost.Connections > 0 && g.connected:
	case cost.Packets > 0:
		if !g.asksAgain || s == &g.Up && g.acquires() {
			g.trial.enterDatagrams(s.class, cost, false)
		}
	default:
		g.connected = g.connected || cost.Connections > 0
		x := g.trial.copy(s.class, cost)
		x.sender, x.item.Patient = s, true
		s.submit(x)
	}
}

// acquires asks for a permit for a client of datagrams, which does not wait for one. It
// reports whether the client has it.
func (g *Guest) acquires() bool {
	if g.asksAgain = !g.permit.Acquire(g.class, g); g.asksAgain {
		g.permit.Release()
	}
	return !g.asksAgain
}

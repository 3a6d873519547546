package shaper

import (
	"slices"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A Guest is a session in a trial. It waits for a slot as the session would, and for its
// class if that counts connections; what it sends meanwhile enters afterwards. When the
// session has really ended, the guest keeps its slot until all that it has sent would
// have left and been answered. The lock of its trial guards it.
type Guest struct {
	// Up is what the session sends to the upstream, Down what comes back.
	Up, Down Source

	trial  *Trial
	class  *Class // towards the upstream; nil: no class of the trial limits the session
	slot   Slot
	opens  *Copy // the connection, which waits for its class
	copies []*Copy
	joined []*Class

	asked     bool // it has asked for its slot
	connected bool // the connection has entered its class
	queued    bool // it waits for its slot
	gone      bool // it would have been refused, or has ended
	ending    bool // the session has really ended
	orphans   int  // copies that it had when the session ended
	retries   bool // each of its datagrams asks for a slot, until it has got one

	patience event
}

// Guest returns the guest of a session that is in two classes of the trial; nil for none.
// Its messages may be in others; see Join.
func (t *Trial) Guest(now time.Time, who policy.Conn, up, down *Class) *Guest {
	g := &Guest{trial: t}
	g.class = g.Join(now, up, who)
	g.Up = Source{guest: g, class: g.class}
	g.Down = Source{guest: g, class: g.Join(now, down, who)}
	return g
}

// Join returns the class that messages of the session enter: c, or the bucket for the
// session. The guest quits it when it is gone.
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

// Follow takes a session that fails over, and has sent nothing yet, to two other classes.
// It returns false if the class towards the upstream changes: then the session needs
// another guest, which asks for a slot again. A session that would have been refused
// stays refused.
func (g *Guest) Follow(now time.Time, who policy.Conn, up, down *Class) bool {
	up, down = g.Join(now, up, who), g.Join(now, down, who)
	defer g.trial.at(now).Unlock()
	if !g.gone && up == g.class {
		g.Down.class = down
	}
	return g.gone || up == g.class
}

// Open asks for a slot, as the session would under its protocol, unless it has asked.
func (g *Guest) Open(now time.Time, protocol policy.Protocol) {
	defer g.trial.at(now).Unlock()
	if g.asked {
		return
	}
	g.asked = true
	if g.retries = protocol == policy.UDP; g.retries || g.class == nil || g.gone || g.slot.Acquire(g.class, g) {
		return
	}
	conf := g.class.Policy()
	switch {
	case conf.OverflowFor(protocol) != policy.Wait:
		g.class.tally.lose(stats.QueueFull, &Cost{})
		g.leave()
	default:
		g.queued = true
		if g.patience.of = g; conf.MaxWait > 0 {
			g.trial.schedule(g.trial.latest.Add(time.Duration(conf.MaxWait)), &g.patience)
		}
	}
}

// Stay gives a session that was open before the trial began a slot, even if there is none
// to be had.
func (g *Guest) Stay(now time.Time) {
	defer g.trial.at(now).Unlock()
	g.asked, g.connected = true, true
	if g.class != nil && !g.gone {
		g.slot.Hold(g.class)
	}
}

// happen ends the guest: it has waited too long for a slot.
func (g *Guest) happen() {
	g.class.tally.lose(stats.MaxWait, &Cost{})
	g.leave()
}

// Acquired implements SlotOwner: what the session has sent meanwhile enters now.
func (g *Guest) Acquired() {
	g.queued = false
	g.trial.unschedule(&g.patience)
	g.goOn()
	g.tidy()
}

// End says that the session has really ended. If cleanly, what it has sent goes on.
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
	if g.tidy(); !g.gone {
		g.outlive()
	}
}

// outlive lets the guest outlast its session. If the guests of sessions that have ended
// have too many copies already, it ends the guest: nothing else bounds these copies.
func (g *Guest) outlive() {
	n := len(g.copies) + int(g.Up.behind+g.Down.behind)
	if g.trial.orphans+n > mostCopies {
		g.leave()
		return
	}
	g.orphans = n
	g.trial.orphans += n
}

// Classes returns the classes of the session, towards the upstream and back; nil for none.
func (g *Guest) Classes() (up, down *Class) { return g.class, g.Down.class }

// Offer offers the copy of a message. The bytes of its body are in its class, too. Offer
// returns the copy if that gets an answer.
func (s *Source) Offer(now time.Time, o Offer) *Copy {
	t := s.guest.trial
	defer t.at(now).Unlock()
	s.class = o.Class.Counting(unit.Bytes)
	if o.Class == nil || s.guest.gone {
		return nil
	}
	x := t.copy(o.Class, o.Cost)
	x.sender, x.offer, x.item.Asks = s, o, o.Asks
	s.submit(x)
	if !o.Asks {
		return nil
	}
	return x
}

// Send offers a copy of what is no message: bytes, a datagram, a connection.
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
		x.sender, x.item.Patient = s, true
		s.submit(x)
	}
}

// acquires asks for the slot of a client of datagrams, which does not wait for one.
func (g *Guest) acquires() bool {
	if g.retries = !g.slot.Acquire(g.class, g); g.retries {
		g.slot.Release()
	}
	return !g.retries
}

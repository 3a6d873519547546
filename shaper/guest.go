package shaper

import (
	"slices"
	"time"

	"shaper/policy"
	"shaper/stats"
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

	asked     bool // for its slot
	connected bool // the connection has entered its class
	queued    bool // waits for its slot
	gone      bool // would have been refused, or has ended
	ending    bool // has really ended
	retries   bool // each of its datagrams asks for a slot, until it has got one

	patience event
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

// Follow leads a session that fails over, and has sent nothing yet, to two other
// classes. It returns false if the one towards the upstream is another one: there the
// session needs another guest, which asks for a slot again. A session that would have
// been refused stays so.
func (g *Guest) Follow(now time.Time, who policy.Conn, up, down *Class) bool {
	up, down = g.Join(now, up, who), g.Join(now, down, who)
	defer g.trial.at(now).Unlock()
	if !g.gone && up == g.class {
		g.Down.class = down
	}
	return g.gone || up == g.class
}

// Open has the session ask for a slot, as it would under its protocol, unless it has
// done so.
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
			g.trial.happensAt(g.trial.latest.Add(time.Duration(conf.MaxWait)), &g.patience)
		}
	}
}

// Stay gives a session a slot that was open before the trial began, even if there is
// none to be had.
func (g *Guest) Stay(now time.Time) {
	defer g.trial.at(now).Unlock()
	g.asked, g.connected = true, true
	if g.class != nil && !g.gone {
		g.slot.Hold(g.class)
	}
}

// happen ends a wait for a slot that takes too long.
func (g *Guest) happen() {
	g.class.tally.lose(stats.MaxWait, &Cost{})
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
	g.Up.drop()
	g.Down.drop()
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

// Classes returns the classes of the session, there and back; nil for none.
func (g *Guest) Classes() (up, down *Class) { return g.class, g.Down.class }

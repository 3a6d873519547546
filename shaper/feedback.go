package shaper

import (
	"time"

	"shaper/policy"
)

// A Provider stands for the provider to which the items of a class go. Callers tell it what the
// provider answers, and ask it what came of the answers. Each method takes the lock of the tree. A
// Provider is a value of one pointer and remembers nothing itself, so a caller may get one for each
// answer at no cost.
type Provider struct{ class *Class }

// Provider returns what the class knows of its provider.
func (c *Class) Provider() Provider { return Provider{c} }

// Answered says that an item which Asks has its answer at now, or will never have one. ok
// says that the provider did not complain about the rate. What concerns a class that a reload has
// replaced also concerns its heir, the class that goes on from it.
func (p Provider) Answered(now time.Time, ok bool) {
	for _, heir := range answered(now, p.class, ok) {
		heir.lower(now, ok)
	}
}

// answered is Answered for a class and those above it, but not for the heirs of classes that a
// reload has replaced. It returns what the heirs inherit.
func answered(now time.Time, c *Class, ok bool) (heirs []inheritance) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.countInFlight(-1)
	for n := &c.node; n != nil; n = n.parent.Load() {
		if heir := n.class.heir; heir != nil {
			heirs = append(heirs, inheritance{heir, n.unanswered()})
			continue
		}
		if shadow := n.class.shadow; shadow != nil && n.class.keys == nil {
			shadow.answered(now)
		}
		if ok {
			n.throttle.pause = 0
			learned(now, n, false)
			n.throttle.witness.answered(now, false)
		}
	}
	c.update(now)
	root.wake(now)
	return heirs
}

// An inheritance is how many items are in flight of a class that an heir has replaced. The
// classes above the replaced class still count these items.
type inheritance struct {
	heir     *Class
	inFlight int
}

// begin makes the class that goes on from old start with what is in flight there, when all classes have moved. An answer that came
// before it did so has lowered nothing, so begin asks a second time. If the class waits until an item has left of one that is not
// beneath it, nobody would say so, and begin ends that.
func begin(now time.Time, old *Class) {
	c, n := old.heir, old.InFlight()
	root, now := c.lockAt(now)
	inheritance{c, n}.take(now)
	if !c.leavingSince.IsZero() && !c.payer.isBeneath(&c.node) {
		at := now.Add(leaveMargin)
		c.settle(at, at, now, 0)
	}
	root.mu.Unlock()
	inheritance{c, old.InFlight()}.lower(now, false)
}

// take makes the items count as in flight of the heir. The lock of its tree is held.
func (i inheritance) take(now time.Time) {
	if shadow := i.heir.shadow; shadow != nil {
		shadow.moveInFlight(now, i.inFlight-i.heir.inherited)
	}
	i.heir.inherited = i.inFlight
}

// lower says that no more of the items remain than so many; ok is that of Answered. Answers may come
// in another order than they were counted in. They teach the heir nothing, since the class before may
// have had another pace.
func (i inheritance) lower(now time.Time, ok bool) {
	c := i.heir
	root, now := c.lockAt(now)
	inheritance{c, min(c.inherited, i.inFlight)}.take(now)
	next := inheritance{c.heir, c.unanswered()}
	if next.heir == nil && ok {
		c.throttle.pause = 0
	}
	c.update(now)
	root.wake(now)
	root.mu.Unlock()
	if next.heir != nil {
		next.lower(now, ok)
	}
}

// learned notes an answer for a class that learns, and keeps what it finds.
func learned(now time.Time, n *node, refused bool) {
	if n.learn(now, refused) {
		n.class.backing.noteFinding(now)
	}
}

// Settle corrects what was charged for an item that has left the class at the time then. more is
// what it costs beyond that, in each unit; a negative number is given back. A class on the path gives
// back no more than its limits still count (see limit.Amend), and nothing if the class came beneath
// it only after then: it was not charged, unless it goes on from a class that was. What concerns a class that a
// reload has replaced also concerns its heir.
func (p Provider) Settle(now, then time.Time, more Cost) {
	correction{then, false}.settle(now, p.class, false, &more)
}

// Unused says that an item which left the class at the time then, and cost so much, could not be sent, and
// enters the class again. Windows give its charge back, by the rules of Settle. Other limits do not: there
// a turn that is not used is lost.
func (p Provider) Unused(now, then time.Time, cost Cost) {
	less := Cost{}.Minus(cost)
	correction{then, true}.settle(now, p.class, false, &less)
}

// A correction corrects what was charged for an item that left at the time then.
type correction struct {
	then  time.Time
	again bool // it will be charged again; see regulator.takeBack
}

// settle corrects a class, and unless alone is set the classes above it. It corrects the heir of
// each of them alone: a class above an heir is also above the class that the heir has replaced, or
// was not charged.
func (d correction) settle(now time.Time, c *Class, alone bool, more *Cost) {
	for _, heir := range d.amendPath(now, c, alone, more) {
		d.settle(now, heir, true, more)
	}
}

// amendPath corrects a class, and unless alone is set the classes above it. It returns the heirs of
// these classes.
func (d correction) amendPath(now time.Time, c *Class, alone bool, more *Cost) (heirs []*Class) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	for n := &c.node; n != nil; n = n.parent.Load() {
		if units := more.In(n.kind); units > 0 || units < 0 && d.then.After(c.risenTo(n)) {
			if d.again {
				n.takeBack(now, d.then, units)
			} else {
				n.amend(now, d.then, units)
			}
			if heir := n.class.heir; heir != nil {
				heirs = append(heirs, heir)
			}
		}
		if alone {
			break
		}
	}
	c.update(now)
	root.wake(now)
	return heirs
}

// Throttled says that the provider has refused something from the class as too fast. wait
// is how long it wants nothing more; 0 if it does not say. signal is what it said, for the
// counters.
//
// One class pauses, with all beneath it: the nearest on the path to the root that has
// on_throttle, adapt or learn, or else the last on the path that counts messages or tokens. If none
// does, the signal only counts: bytes have no answers, and a pause would stop what belongs to others. While
// a class pauses, refusals of what left before do not prolong the pause, unless the provider says for
// how long.
func (p Provider) Throttled(now time.Time, wait time.Duration, signal string) {
	p.pause(now, wait, signal, pausing)
}

// ThrottledHere is Throttled if the policy of the class says what was refused: this class
// pauses, with all beneath it.
func (p Provider) ThrottledHere(now time.Time, wait time.Duration, signal string) {
	p.pause(now, wait, signal, itself)
}

func itself(n *node) *node { return n }

// pause makes a class pause: the class that chosen returns for the class of p, or its heir after a
// reload.
func (p Provider) pause(now time.Time, wait time.Duration, signal string, chosen func(*node) *node) {
	if heir := p.pauseChosen(now, wait, signal, chosen); heir != nil {
		heir.Provider().pause(now, wait, signal, itself)
	}
}

// pauseChosen is pause, unless the chosen class has an heir. Then it returns the heir.
func (p Provider) pauseChosen(now time.Time, wait time.Duration, signal string, chosen func(*node) *node) (heir *Class) {
	root, now := p.class.lockAt(now)
	defer root.mu.Unlock()
	n := chosen(&p.class.node)
	if n == nil {
		p.class.tally.throttled(signal)
		return nil
	}
	if n.class.heir != nil {
		return n.class.heir
	}
	n.class.tally.throttled(signal)
	before := n.throttle.until
	n.signal(now, wait)
	n.class.backing.tellPause(now, before)
	learned(now, n, true)
	for n := &p.class.node; n != nil; n = n.parent.Load() {
		n.throttle.witness.answered(now, true)
	}
	n.update(now)
	root.wake(now)
	return nil
}

// pausing returns the node that pauses if the provider throttles a node: the node itself,
// or a node above it; nil if none does.
func pausing(n *node) (last *node) {
	for ; n != nil; n = n.parent.Load() {
		switch {
		case n.class.keys != nil:
		case n.onThrottle != (policy.OnThrottle{}) || n.adapts || n.throttle.learner.learns():
			return n
		case n.kind.OfMessages():
			last = n
		}
	}
	return last
}

// Learned returns the limit that the class has found below its rate, in messages a second; 0 if it
// has found none. A class in the shadow is not paced at it.
func (p Provider) Learned() float64 {
	defer p.class.lock().mu.Unlock()
	t := &p.class.throttle
	if l := t.learner; l != nil && l.level < l.top {
		return l.level
	}
	return t.witness.found()
}

// Signals returns what the signals of the provider do to the class at now: until when it
// pauses, or the zero Time if it does not, and the part of its rate that it has.
func (p Provider) Signals(now time.Time) (until time.Time, part float64) {
	n := &p.class.node
	root, now := n.lockAt(now)
	defer root.mu.Unlock()
	n.regain(now)
	if until = n.throttle.until; !until.After(now) {
		until = time.Time{}
	}
	return until, n.throttle.part()
}

// InFlight returns how many items of the class and of those beneath it have left and have
// no answer yet.
func (n *node) InFlight() int {
	defer n.lock().mu.Unlock()
	return n.unanswered()
}

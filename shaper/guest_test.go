package shaper

import (
	"testing"
	"time"

	"shaper/policy"
)

// Sessions that have ended, with what still waits for them in the shadow, take no more
// memory than the longest queue, however many there are.
func TestGuestsAreBounded(t *testing.T) {
	conf := withPermits(withQueue(leakyClass("1 messages/h"), 10, 0), 1)
	conf.Overflow = policy.Wait
	trial := NewTrial(start, []policy.Class{conf})
	c := trial.Classes()[0]
	for n := range maxCopies / 10 {
		now := at(time.Duration(n) * ms)
		g := trial.Guest(now, policy.Conn{}, c, nil)
		g.Open(now, policy.SMPP)
		for range 100 {
			g.Up.Offer(now, Offer{Class: c, Cost: Cost{Messages: 1, Bytes: 10}, Waits: true, Holds: 512})
		}
		g.End(now, true)
	}
	if n := copiesOf(c); n > 2*maxCopies {
		t.Errorf("the trial keeps %d copies", n)
	}
}

// The same holds for what waits in the class itself, from sessions that do not wait for a
// permit.
func TestGuestsThatHaveEndedAreBounded(t *testing.T) {
	conf := withQueue(leakyClass("1 messages/h"), 10, 0)
	conf.Overflow = policy.Wait
	trial := NewTrial(start, []policy.Class{conf})
	c := trial.Classes()[0]
	var guests []*Guest
	for range maxCopies / 10 {
		g := trial.Guest(start, policy.Conn{}, c, nil)
		g.Open(start, policy.SMPP)
		for range 20 {
			g.Up.Offer(start, Offer{Class: c, Cost: Cost{Messages: 1, Bytes: 10}, Waits: true, Holds: 512})
		}
		g.End(start, true)
		guests = append(guests, g)
	}
	kept := 0
	for _, g := range guests {
		kept += len(g.copies)
	}
	if kept > maxCopies || kept < maxCopies/2 || kept != trial.orphans {
		t.Errorf("the trial keeps %d copies, and counts %d", kept, trial.orphans)
	}
}

// copiesOf returns how many copies wait for a permit of a class.
func copiesOf(c *Class) (n int) {
	for e := c.waiters.Front(); e != nil; e = e.Next() {
		g := e.Value.owner.(*Guest)
		n += len(g.copies) + int(g.Up.blocked+g.Down.blocked)
	}
	return n
}

// Sessions that wait for a permit and go on sending block no more copies than may wait in a
// class. When the first of them ends, all that have ended meanwhile go on.
func TestGuestsThatAreHeldUpAreBounded(t *testing.T) {
	conf := withPermits(withQueue(tokenClass("1000000 messages/s", 1_000_000), 10, 0), 1)
	conf.Overflow = policy.Wait
	trial := NewTrial(start, []policy.Class{conf})
	c := trial.Classes()[0]
	guests := make([]*Guest, 2*maxCopies)
	for n := range guests {
		g := trial.Guest(start, policy.Conn{}, c, nil)
		g.Open(start, policy.SMPP)
		for range 2 {
			g.Up.Offer(start, Offer{Class: c, Cost: Cost{Messages: 1, Bytes: 10}, Waits: true, Holds: 512})
		}
		guests[n] = g
	}
	if trial.blocked > maxCopies {
		t.Errorf("%d copies are blocked", trial.blocked)
	}
	for _, g := range guests[1:] {
		g.End(at(ms), true)
	}
	guests[0].End(at(2*ms), true)
	if c.waiters.Len() != 0 || c.admitted != 0 || trial.blocked != 0 || trial.orphans != 0 {
		t.Errorf("%d sessions wait, %d are admitted, %d copies are blocked, and %d belong to sessions that have ended", c.waiters.Len(), c.admitted, trial.blocked, trial.orphans)
	}
	if n := c.Stats.Wait.Read().Count; n < maxCopies {
		t.Errorf("%d messages have left, want those that were blocked", n)
	}
}

package conn

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// place is the slot of a session in its class (max_connections), and the wait for it. The
// lock of the session guards it.
type place struct {
	session *tcpSession // never changes
	slot    shaper.Slot
	most    alarm // ends a wait that takes longer than max_wait
}

// acquire acquires a slot of the class, and reports whether there is one. If not, the session
// waits: its driver is driven when it has the slot. If it may not wait, it ends.
func (p *place) acquire() bool {
	t := p.session
	t.stage = queued
	class := t.up.flow.Class()
	t.copies.open(t)
	switch {
	case p.slot.Acquire(class, p):
		p.taken()
		return true
	case class.Policy().OverflowFor(t.conf.Protocol) == policy.Refuse:
		t.up.refuse(stats.QueueFull)
	default:
		p.wait(time.Duration(class.Policy().MaxWait))
	}
	return false
}

// wait ends the session if it has no slot when so much time has passed; 0: it waits on.
func (p *place) wait(most time.Duration) {
	if most == 0 {
		return
	}
	p.most.after(most, p.session, func() { p.session.up.refuse(stats.MaxWait) })
}

// Acquired implements shaper.SlotOwner: the session has the slot that it has waited for.
func (p *place) Acquired() { p.session.poller.Revisit(p.session) }

// Protocol implements shaper.SlotOwner.
func (p *place) Protocol() policy.Protocol { return p.session.conf.Protocol }

// taken notes that the session has its slot.
func (p *place) taken() {
	p.most.stop()
	p.session.stage = resolving
}

// finish implements part: it releases the slot, or gives up the wait for it.
func (p *place) finish(stats.Result) {
	p.most.stop()
	p.slot.Release()
}

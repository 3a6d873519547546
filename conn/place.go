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
	timer   *time.Timer // ends a wait that takes longer than max_wait; nil: there is none
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

// wait bounds the wait, which nobody can predict. 0 is no bound.
func (p *place) wait(most time.Duration) {
	if most == 0 {
		return
	}
	p.timer = time.AfterFunc(most, func() {
		p.session.do(func(t *tcpSession) {
			if t.stage == queued {
				t.up.refuse(stats.MaxWait)
			}
		})
	})
}

// Acquired implements shaper.SlotOwner: the session has the slot that it has waited for.
func (p *place) Acquired() { p.session.poller.Revisit(p.session) }

// taken ends the wait for the slot.
func (p *place) taken() {
	p.stop()
	p.session.stage = resolving
}

func (p *place) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// finish implements part: it releases the slot, or gives up the wait for it.
func (p *place) finish(stats.Result) {
	p.stop()
	p.slot.Release()
}

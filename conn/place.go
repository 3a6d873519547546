package conn

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// place is the slot of a session in its class, one of max_connections, and the wait for it.
// The lock of the session guards it.
type place struct {
	session *tcpSession // never changes
	slot    shaper.Slot
	timer   *time.Timer // ends a wait that takes too long; nil: it has not had to wait
}

// acquire takes a slot of the class, or waits for one. It reports whether the session has one.
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

// wait gives the wait up when it has taken so long; nobody knows before how long it will
// take. A patience of 0 has no end.
func (p *place) wait(patience time.Duration) {
	if patience == 0 {
		return
	}
	p.timer = time.AfterFunc(patience, func() {
		p.session.do(func(t *tcpSession) {
			if t.stage == queued {
				t.up.refuse(stats.MaxWait)
			}
		})
	})
}

// Acquired implements shaper.SlotOwner: a slot that was waited for is there.
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

// finish implements part: it gives the slot back, or the wait for it up.
func (p *place) finish(stats.Result) {
	p.stop()
	p.slot.Release()
}

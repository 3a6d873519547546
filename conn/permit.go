package conn

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// permit is the permit of a session to be open in its class (max_connections), and the wait for
// it. The lock of the session guards both.
type permit struct {
	shaper.Permit
	session *tcpSession // never changes
	most    alarm       // ends a wait that takes too long
}

// reconnectGrace is how long a session waits for a permit before it is refused. A client may end a session and connect again at
// once, and shaper sees the end of the old connection a moment after the new one.
const reconnectGrace = 250 * time.Millisecond

// acquire acquires a permit of the class, and reports whether there is one. If not, the session
// waits: its driver is driven when it has the permit.
func (p *permit) acquire() bool {
	t := p.session
	t.stage = queued
	class := t.up.flow.Class()
	t.copies.open(t)
	if p.Acquire(class, p) {
		p.taken()
		return true
	}
	t.dialling.waitsSince = time.Now()
	p.bound()
	return false
}

// bound bounds the wait, from its beginning on, as the class says now: a reload or a set may have changed the class, and a reload may have moved
// the session.
func (p *permit) bound() {
	t := p.session
	class := t.up.flow.Class()
	most, reason := time.Duration(class.Policy().MaxWait), stats.MaxWait
	if class.Messages().OverflowFor(t.conf.Protocol) == policy.Refuse {
		reason = stats.QueueFull
		if most == 0 || most > reconnectGrace {
			most = reconnectGrace
		}
	}
	if most == 0 {
		p.most.stop()
		return
	}
	p.wait(time.Until(t.dialling.waitsSince.Add(most)), reason)
}

// BoundWaits bounds the waits for permits anew. The caller has changed classes in place, without a Change.
func (s *Server) BoundWaits() {
	for _, one := range s.sessions.all() {
		if t, isTCP := one.(*tcpSession); isTCP {
			t.do(func(t *tcpSession) {
				if t.stage == queued {
					t.permit.bound()
				}
			})
		}
	}
}

// wait ends the session if it has no permit when so much time has passed.
func (p *permit) wait(most time.Duration, reason stats.Reason) {
	p.most.after(most, p.session, func() {
		if !p.IsOpen() { // otherwise its driver is about to be driven
			p.session.up.refuse(reason)
		}
	})
}

// Acquired implements shaper.PermitOwner: the session has the permit that it has waited for.
func (p *permit) Acquired() { p.session.poller.Revisit(p.session) }

// Protocol implements shaper.PermitOwner.
func (p *permit) Protocol() policy.Protocol { return p.session.conf.Protocol }

// taken notes that the session has its permit.
func (p *permit) taken() {
	p.most.stop()
	p.session.stage = resolving
}

// finish implements part: it releases the permit, or gives up the wait for it.
func (p *permit) finish(stats.Result) {
	p.most.stop()
	p.Release()
}

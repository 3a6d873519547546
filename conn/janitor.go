package conn

import (
	"time"

	"shaper/stats"
)

// The janitor checks each session once a period. If a session may be idle for patientFrom or
// longer, it checks it only once in patientTurns periods. So a time-out is late by at most
// that, and thousands of idle sessions cost next to nothing.
const (
	janitorPeriod = 500 * time.Millisecond
	patientFrom   = time.Minute
	patientTurns  = 8
)

// janitor ends the sessions that have been idle for too long. One walk over all of them
// costs less than a timer in each, and nothing per byte.
func (s *Server) janitor() {
	ticker := time.NewTicker(janitorPeriod)
	defer ticker.Stop()
	var batch []session
	for turn := uint64(0); ; turn++ {
		select {
		case <-s.ctx.Done():
			return
		case now := <-ticker.C:
			batch = s.toTend(batch[:0], turn)
			for _, one := range batch {
				s.tend(one, now)
			}
			clear(batch)
			s.routing.catchUp(now)
		}
	}
}

// toTend appends to into the sessions to check in this turn.
func (s *Server) toTend(into []session, turn uint64) []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.sessions {
		if (id+turn)%patientTurns == 0 || !one.patient() {
			into = append(into, one)
		}
	}
	return into
}

func (s *Server) tend(one session, now time.Time) {
	defer s.rescue(one)
	one.tend(now)
}

// tend implements session: it ends a session in which nothing has moved for its idle timeout.
//
// A session that waits for its class is not idle, unless the provider owes an answer: then its
// silence may be what keeps the message waiting. While bytes wait, for the class or for the
// other peer, nobody reads, so nobody would notice a reset. tend does. What a client sent before
// its reset is dropped. What an upstream sent before still goes to the client.
func (t *tcpSession) tend(now time.Time) {
	t.do(func(t *tcpSession) {
		age := now.Sub(t.started)
		waiting := t.up.waiting || t.down.waiting
		stuck := waiting || t.held() > 0
		waiting = t.relay.tend(now) || waiting
		active := t.up.active || t.down.active
		t.up.active, t.down.active = false, false
		switch {
		case t.stage == cutting: // cutTimeout bounds it
		case stuck && !active && t.isLost():
			t.finish(stats.ResetByPeer)
		case waiting && !t.upstream.Broken, active, t.stage != relaying:
			t.quietFrom = age
		case age-t.quietFrom < t.patience():
		case t.upstream.Broken:
			t.finish(stats.ResetByPeer)
		default:
			t.finish(stats.TimedOut)
		}
		if t.stage == relaying && isOld(&t.conf.Listener, t.id, age) {
			t.relay.age(now, !waiting && age-t.quietFrom >= quietTime)
		}
	})
}

// isLost reports whether a peer has reset the connection, and nothing that the session has is of
// use to the other one.
func (t *tcpSession) isLost() bool {
	return t.client.Broken || t.upstream.Broken && !t.down.waiting && t.down.carrier.held() == 0
}

// quietTime is how long nothing moves in an old session before it ends, if nobody knows which
// message answers which.
const quietTime = 5 * time.Second

// patient implements session.
func (t *tcpSession) patient() bool {
	return !agesSoon(&t.conf.Listener) && time.Duration(min(t.conf.IdleTimeout, t.conf.HalfCloseTimeout)) >= patientFrom
}

// patience returns how long the session may be idle now.
func (t *tcpSession) patience() time.Duration {
	if t.up.done != t.down.done || t.upstream.Broken {
		return time.Duration(min(t.conf.IdleTimeout, t.conf.HalfCloseTimeout))
	}
	return time.Duration(t.conf.IdleTimeout)
}

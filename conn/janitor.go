package conn

import (
	"maps"
	"time"

	"shaper/stats"
)

// The janitor checks each session once a period. If a session may be idle for patientFrom or
// longer, it checks it only once in patientTurns periods. So a time-out is late by at most twice
// that: one check notes that nothing moves any more, and a later one that it has been so for too
// long. A datagram session may have up to mostPatience times as many, as only time-outs depend on its
// checks. Thousands of idle sessions cost next to nothing.
const (
	janitorPeriod = 500 * time.Millisecond
	patientFrom   = time.Minute
	patientTurns  = 8
	mostPatience  = 8
)

// janitor ends the sessions that have been idle for too long. One walk over all of them
// costs less than a timer in each, and nothing per byte. It also lets the copies in a shadow
// catch up. One goroutine owns it.
type janitor struct {
	server *Server
	turn   uint64    // how many periods have passed
	batch  []session // to check in this turn
}

// run checks the sessions until the server has stopped.
func (j *janitor) run() {
	ticker := time.NewTicker(janitorPeriod)
	defer ticker.Stop()
	for ; ; j.turn++ {
		select {
		case <-j.server.ctx.Done():
			return
		case now := <-ticker.C:
			j.gather()
			for _, one := range j.batch {
				j.tend(one, now)
			}
			clear(j.batch)
			j.server.routing.catchUp(now)
		}
	}
}

// gather puts the sessions to check in this turn into the batch.
func (j *janitor) gather() {
	s := j.server
	s.mu.Lock()
	maps.DeleteFunc(s.closing, func(_ address, u *udpSocket) bool { return u.is(udpClosed) })
	closes := len(s.closing) > 0
	s.mu.Unlock()
	j.batch = s.sessions.due(j.batch[:0], j.turn, s.stopping.Load(), closes)
}

// tend checks a session. No lock is held.
func (j *janitor) tend(one session, now time.Time) {
	defer j.server.rescue(one)
	one.tend(now)
}

// tend implements session: it ends a session in which nothing has moved for its idle timeout.
//
// A session that waits for its class is not idle, unless an answer that the provider owes would
// let it go on (see relay): then the provider's silence may be what keeps it waiting. While bytes
// wait, for the class or for the other peer, nobody reads, so nobody would notice a reset. Nor does
// anybody read from a client that has sent a FIN. tend notices. What a client sent before its reset
// is dropped. What an upstream sent before still goes to the client.
func (t *tcpSession) tend(now time.Time) {
	t.do(func(t *tcpSession) {
		age := now.Sub(t.started)
		stuck := t.up.waiting || t.down.waiting
		left := t.up.ended && t.client.Broken && t.upstream.hasAll() // else the reset that follows loses what it has sent
		active := t.up.active || t.down.active
		t.up.active, t.down.active = false, false
		waiting := stuck
		if active || !t.rests { // most idle sessions rest, and what their relays know is not in the cache
			waits, rests := t.relay.tend(now)
			waiting, t.rests = waiting || waits, rests && t.stage == relaying // before, another relay may follow
		}
		switch {
		case t.stage == cutting: // cutTimeout bounds it
		case !active && t.isLost() && (stuck || t.held() > 0 || t.up.fault == stats.Unframed || left):
			t.down.cutOff(stats.ResetByPeer)
		case waiting && !t.upstream.Broken, active, t.stage != relaying:
			t.quietFrom = age
		case age-t.quietFrom < t.patience():
		case t.upstream.Broken:
			t.finish(stats.ResetByPeer)
		default:
			t.finish(stats.TimedOut)
		}
		quiet := !waiting && age-t.quietFrom >= quietTime
		if t.stage == relaying && isOld(&t.conf.Listener, t.id, age) {
			t.relay.age(now, quiet)
		}
		if t.stage == relaying && t.server.drains.Load() {
			t.relay.drain(now, quiet)
		}
	})
}

// isLost reports whether a peer has reset its connection, and nothing that the session holds is of
// use to the other peer. A client that has cut TLS by a FIN takes nothing more, and has not reset.
func (t *tcpSession) isLost() bool {
	return t.client.Broken || t.upstream.Broken && (t.down.shut || !t.down.holds())
}

// quietTime is how long nothing must move in an old session before it ends, if its protocol does
// not tell which answer belongs to which request. While the server stops, it is how long a client of
// HTTP that has just connected may take for its first request.
const quietTime = 5 * time.Second

// turnsBetween implements session. Nothing that it reads changes.
func (t *tcpSession) turnsBetween() uint64 {
	if agesSoon(&t.conf.Listener) || time.Duration(min(t.conf.IdleTimeout, t.conf.HalfCloseTimeout)) < patientFrom {
		return 1
	}
	return patientTurns
}

// patience returns how long the session may be idle now.
func (t *tcpSession) patience() time.Duration {
	if t.up.done != t.down.done || t.up.fault == stats.Unframed || t.upstream.Broken {
		return time.Duration(min(t.conf.IdleTimeout, t.conf.HalfCloseTimeout))
	}
	return time.Duration(t.conf.IdleTimeout)
}

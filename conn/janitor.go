package conn

import (
	"time"

	"shaper/stats"
)

// janitorPeriod is how often sessions are looked at. Time-outs are late by at
// most this.
const janitorPeriod = 500 * time.Millisecond

// halfCloseTimeout bounds how long a session goes on in one direction, after
// the other has ended, without a byte.
const halfCloseTimeout = 5 * time.Minute

// janitor ends the sessions that have been quiet for too long. One walk over
// all of them costs less than a timer in each, and nothing per byte.
func (s *Server) janitor() {
	ticker := time.NewTicker(janitorPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
			now := time.Now()
			for _, one := range s.all() {
				s.tend(one, now)
			}
		}
	}
}

func (s *Server) tend(one session, now time.Time) {
	defer s.rescue(one)
	one.tend(now)
}

// tend ends a session in which nothing has moved for its idle timeout. What
// waits for its class is not idle. Where bytes wait, for the class or for the
// other peer to take them, nobody reads on and would notice a reset: tend does.
func (t *tcpSession) tend(now time.Time) {
	t.place.Lock()
	connected := t.upstream.conn != nil
	t.place.Unlock()
	waiting := t.up.waiting.Load() || t.down.waiting.Load()
	stuck := waiting || t.up.held.Load() > 0 || t.down.held.Load() > 0
	active := t.up.active.Swap(false)
	active = t.down.active.Swap(false) || active
	if stuck && t.gone() {
		t.abort(stats.ResetByPeer)
	}
	if waiting || active || !connected || t.quietSince.IsZero() {
		t.quietSince = now
		return
	}
	if now.Sub(t.quietSince) >= t.patience() {
		t.abort(stats.TimedOut)
	}
}

// gone reports whether one of the peers has reset its connection.
func (t *tcpSession) gone() bool {
	if raw, err := t.client.SyscallConn(); err != nil || broken(raw) {
		return true
	}
	t.place.Lock()
	defer t.place.Unlock()
	return t.upstream.conn != nil && broken(t.upstream.raw)
}

// patience returns how long the session may be quiet.
func (t *tcpSession) patience() time.Duration {
	idle := time.Duration(t.conf.IdleTimeout)
	if t.up.done.Load() != t.down.done.Load() {
		return min(idle, halfCloseTimeout)
	}
	return idle
}

package conn

import (
	"time"

	"shaper/stats"
)

// Sessions are looked at in every period of the janitor, those that may be quiet
// for patientFrom and longer in every patientTurns-th: time-outs are late by at most
// that, and thousands of idle sessions take next to no processor.
const (
	janitorPeriod = 500 * time.Millisecond
	patientFrom   = time.Minute
	patientTurns  = 8
)

// janitor ends the sessions that have been quiet for too long. One walk over
// all of them costs less than a timer in each, and nothing per byte.
func (s *Server) janitor() {
	ticker := time.NewTicker(janitorPeriod)
	defer ticker.Stop()
	var due []session
	for turn := uint64(0); ; turn++ {
		select {
		case <-s.ctx.Done():
			return
		case now := <-ticker.C:
			due = s.due(due[:0], turn)
			for _, one := range due {
				s.tend(one, now)
			}
			clear(due)
			s.catchUp(now)
		}
	}
}

// due returns the sessions that are to be looked at in a period.
func (s *Server) due(into []session, turn uint64) []session {
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

// tend ends a session in which nothing has moved for its idle timeout. What
// waits for its class is not idle, unless the provider owes an answer: its
// silence may be what keeps the message waiting. Where bytes wait, for the class or for the
// other peer to take them, nobody reads on and would meet a reset: tend does.
func (t *tcpSession) tend(now time.Time) {
	t.do(func(t *tcpSession) {
		waiting := t.up.waiting || t.down.waiting
		stuck := waiting || t.held() > 0
		waiting = t.relay.tend(now) || waiting
		active := t.up.active || t.down.active
		t.up.active, t.down.active = false, false
		switch {
		case t.stage == cutting: // within lastWords
		case stuck && (t.client.Broken || t.upstream.Broken):
			t.finish(stats.ResetByPeer)
		case waiting || active || t.stage != relaying || t.quietSince.IsZero():
			t.quietSince = now
		case now.Sub(t.quietSince) >= t.patience():
			t.finish(stats.TimedOut)
		}
	})
}

func (t *tcpSession) patient() bool {
	return time.Duration(min(t.conf.IdleTimeout, t.conf.HalfCloseTimeout)) >= patientFrom
}

// patience returns how long the session may be quiet.
func (t *tcpSession) patience() time.Duration {
	if t.up.done != t.down.done {
		return time.Duration(min(t.conf.IdleTimeout, t.conf.HalfCloseTimeout))
	}
	return time.Duration(t.conf.IdleTimeout)
}

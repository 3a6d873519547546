package conn

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// do calls f with the session's lock held, unless the session has ended. If f has ended a greeting, the
// session then goes on without the lock. A panic ends this session only.
func (t *tcpSession) do(f func(*tcpSession)) {
	defer t.server.rescue(t) // after mu is unlocked
	var next func()
	func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.stage == ended {
			return
		}
		f(t)
		if g := t.greeting; g != nil {
			next, g.next = g.next, nil
		}
	}()
	if next != nil {
		next()
	}
}

// rescue makes a panic end one session only. Whoever works for a session defers it, and holds
// no lock of the session when it runs.
func (s *Server) rescue(one session) {
	if p := recover(); p != nil {
		info := one.info()
		s.log.Error("session panicked", "session", info.ID, "listener", info.Listener,
			"panic", p, "stack", string(debug.Stack()))
		one.abort(stats.Panicked)
	}
}

// abort implements session.
func (t *tcpSession) abort(result stats.Result) (aborted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == ended {
		return false
	}
	t.finish(result)
	return true
}

// fail flushes the relay, and then ends the session with a fault. The session's lock is held.
func (t *tcpSession) fail(result stats.Result) {
	t.relay.flush()
	t.finish(result)
}

// finish ends the session, unless it has ended. If the result is not OK, it resets both sides,
// so that what is missing never looks like a clean end. The session's lock is held.
func (t *tcpSession) finish(result stats.Result) {
	if t.stage == ended {
		return
	}
	t.stage, t.driver = ended, over{}
	for _, p := range [...]part{t.greeting, t.entrance(), t.dialling, &t.permit, t.relay, t.copies, &t.client, &t.upstream} {
		p.finish(result)
	}
	t.course.walk.Quit()
	t.service.stats.Ended[result].Add(1)
	t.service.stats.Open.Add(-1)
	t.service.gate.leave()
	t.log(result)
	t.server.sessions.remove(t.id)
}

// log logs the end of the session.
func (t *tcpSession) log(result stats.Result) {
	if !t.server.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	t.server.log.Debug("session ended", "session", t.id, "listener", t.conf.Name,
		"client", t.clientName(), "result", result.String(), "bytes_upstream", t.up.moved, "bytes_downstream", t.down.moved)
}

// dropReason returns why a session that ends with a result drops what it holds.
func dropReason(r stats.Result) stats.Reason {
	switch r {
	case stats.TimedOut:
		return stats.Timeout
	case stats.ByOperator:
		return stats.Closed
	case stats.Drained:
		return stats.Stopped
	case stats.Overflow:
		return stats.QueueFull
	}
	return stats.Reset
}

// isOld reports whether a session has the age at which it ends: up to a tenth less than
// max_session_age, so that sessions that began together do not end together.
func isOld(l *policy.Listener, id uint64, age time.Duration) bool {
	most := time.Duration(l.MaxSessionAge)
	const spread = 97 // how many different ages sessions in a row have
	return most > 0 && age >= most-most/10*time.Duration(id*37%spread)/spread
}

// agesSoon reports whether sessions of a listener get old within a few checks.
func agesSoon(l *policy.Listener) bool {
	return l.MaxSessionAge > 0 && time.Duration(l.MaxSessionAge) < patientFrom
}

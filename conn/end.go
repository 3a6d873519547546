package conn

import (
	"context"
	"log/slog"
	"runtime/debug"

	"shaper/stats"
)

// Whoever has news for a session drives it, and whoever finds that it is over ends it.

// drive does one thing in a session, unless that has ended. A panic ends that
// session only.
func (t *tcpSession) do(do func(*tcpSession)) {
	defer t.server.rescue(t) // when mu is free again
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage != ended {
		do(t)
	}
}

// rescue is deferred where a session is driven: a panic ends that session only.
func (s *Server) rescue(one session) {
	if p := recover(); p != nil {
		info := one.info()
		s.log.Error("session panicked", "session", info.ID, "listener", info.Listener,
			"panic", p, "stack", string(debug.Stack()))
		one.abort(stats.Panicked)
	}
}

// abort ends the session from outside; false if it has ended already.
func (t *tcpSession) abort(result stats.Result) (aborted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == ended {
		return false
	}
	t.finish(result)
	return true
}

// fail ends the session behind what it has passed on before.
func (t *tcpSession) fail(result stats.Result) {
	t.relay.flush()
	t.finish(result)
}

// finish ends the session: cleanly if the result is OK, else with a reset to
// both sides, so that what is missing never looks like a clean end.
func (t *tcpSession) finish(result stats.Result) {
	if t.stage == ended {
		return
	}
	t.stage, t.driver = ended, over{}
	for _, p := range [...]part{&t.dialling, &t.place, t.relay, t.copies, &t.client, &t.upstream} {
		p.finish(result)
	}
	t.service.stats.Ended[result].Add(1)
	t.service.stats.Open.Add(-1)
	t.service.gate.leave()
	t.log(result)
	t.server.remove(t.id)
}

func (t *tcpSession) log(result stats.Result) {
	if !t.server.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	t.server.log.Debug("session ended", "session", t.id, "listener", t.conf.Name,
		"client", t.source, "result", result.String(), "bytes_upstream", t.up.moved, "bytes_downstream", t.down.moved)
}

// lossOf tells from how a session ended why its bytes were dropped.
func lossOf(r stats.Result) stats.Reason {
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

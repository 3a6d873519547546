package conn

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// fault is a reason for which sessions fail or fail over. Peers can cause it at will, so the log
// bounds it.
type fault uint8

const (
	unreachable fault = iota
	failedOver
	unframed
	handshakeFailed
	tlsFailed
	badHeader
	noPort
	denied
	numFaults
)

// String returns the log message.
func (f fault) String() string {
	return [numFaults]string{
		"no upstream could be reached",
		"failed over to another address",
		"received bytes that are no message",
		"TLS handshake with a client failed",
		"TLS failed",
		"a connection of accept_proxy does not begin with a PROXY header",
		"no port is free for a client of datagrams",
		"an entry refused a client",
	}[f]
}

// A listener logs at most faultBurst faults of a kind in each interval, as the kernel does
// (printk_ratelimit). It counts all of them.
const (
	faultInterval = 5 * time.Second
	faultBurst    = 10
)

// ratelimit bounds how often something is logged. The zero ratelimit is ready.
type ratelimit struct {
	mu         sync.Mutex // guards the fields below
	began      time.Time  // when the interval began
	logged     int        // in the interval
	suppressed int        // how many were not, since the last one that was
}

// allow reports whether something may be logged. If so, suppressed is how often it was not
// since the last time.
func (r *ratelimit) allow(now time.Time) (suppressed int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.began) >= faultInterval {
		r.began, r.logged = now, 0
	}
	if r.logged == faultBurst {
		r.suppressed++
		return 0, false
	}
	r.logged++
	suppressed, r.suppressed = r.suppressed, 0
	return suppressed, true
}

// log logs something, unless there was too much.
func (r *ratelimit) log(log *slog.Logger, level slog.Level, what string, about ...any) {
	suppressed, ok := r.allow(time.Now())
	if !ok {
		return
	}
	if suppressed > 0 {
		about = append(about, "suppressed", suppressed)
	}
	log.Log(context.Background(), level, what, about...)
}

// warn logs a fault of the session, unless there were too many.
func (t *tcpSession) warn(f fault, about ...any) {
	t.server.warn(t.service, t.conf.Name, f, append([]any{"client", t.clientName()}, about...))
}

// warn logs a fault at a listener, unless there were too many.
func (s *Server) warn(sv *service, listener string, f fault, about []any) {
	sv.faults[f].log(s.log, slog.LevelWarn, f.String(), append([]any{"listener", listener}, about...)...)
}

package conn

import (
	"sync"
	"time"
)

// fault is why a session fails that anybody may cause, as often as they like.
type fault uint8

const (
	unreachable fault = iota
	failedOver
	unframed
	handshakeFailed
	tlsFailed
	numFaults
)

// String returns what the log says.
func (f fault) String() string {
	return [numFaults]string{
		"no upstream could be reached",
		"failed over to another address",
		"what came is no message that can be told from the next",
		"TLS handshake with a client failed",
		"TLS failed",
	}[f]
}

// A listener logs at most so many faults of a kind in an interval, as the kernel does
// (printk_ratelimit). All are counted in any case.
const (
	faultInterval = 5 * time.Second
	faultBurst    = 10
)

// ratelimit bounds how often something is logged. The zero ratelimit is ready.
type ratelimit struct {
	mu         sync.Mutex
	began      time.Time // of the interval
	logged     int       // in it
	suppressed int       // since it was last told
}

// allow reports whether something may be logged, and how much was not before.
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

// warn logs a fault of the session, unless there have been too many.
func (t *tcpSession) warn(f fault, about ...any) {
	suppressed, ok := t.service.faults[f].allow(time.Now())
	if !ok {
		return
	}
	about = append([]any{"listener", t.conf.Name, "client", t.source}, about...)
	if suppressed > 0 {
		about = append(about, "suppressed", suppressed)
	}
	t.server.log.Warn(f.String(), about...)
}

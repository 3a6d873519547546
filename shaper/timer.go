package shaper

import (
	"time"

	"shaper/limit"
)

// A runtimeTimer is a timer on Go's own timers. It is portable, precise to a millisecond on
// Linux, and follows the fake clock of testing/synctest.
type runtimeTimer struct {
	timer  *time.Timer
	closed chan struct{}
}

func newRuntimeTimer() *runtimeTimer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &runtimeTimer{timer: t, closed: make(chan struct{})}
}

func (t *runtimeTimer) set(at time.Time) {
	if at == limit.Never {
		t.timer.Stop()
		return
	}
	t.timer.Reset(time.Until(at))
}

func (t *runtimeTimer) wait() bool {
	select {
	case <-t.timer.C:
		return true
	case <-t.closed:
		return false
	}
}

func (t *runtimeTimer) close() {
	t.timer.Stop()
	close(t.closed)
}

// precise implements timer: the fake clock stands still while somebody looks at it.
func (t *runtimeTimer) precise() bool { return false }

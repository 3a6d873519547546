package shaper

import (
	"time"

	"shaper/limit"
)

// runtimeTimer is a timer on the Go runtime's: portable, of a millisecond's
// precision on Linux, and of a fake clock's in testing/synctest.
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

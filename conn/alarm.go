package conn

import "time"

// alarm calls one function for a session after a time. The lock of the session guards it. The
// zero alarm is not set.
type alarm struct{ timer *time.Timer } // nil: it is not set

// after calls f with the lock of the session held, unless stop or another after comes before, or
// the session ends.
func (a *alarm) after(wait time.Duration, t *tcpSession, f func()) {
	a.stop()
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		t.do(func(*tcpSession) {
			if a.timer == timer { // otherwise it has fired too late to be stopped
				a.timer = nil
				f()
			}
		})
	})
	a.timer = timer
}

func (a *alarm) isSet() bool { return a.timer != nil }

// stop makes after call nothing.
func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}

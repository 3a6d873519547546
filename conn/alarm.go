package conn

import "time"

// alarm calls one function for a session after a time. The lock of the session guards it, and is
// held in all its methods. The zero alarm is not set.
type alarm struct{ timer *time.Timer } // nil: it is not set

// after sets the alarm: when wait is over, it calls f with the lock of the session held. It does
// not if stop or another after is called before, or if the session has ended.
func (a *alarm) after(wait time.Duration, t *tcpSession, f func()) {
	a.stop()
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		t.do(func(*tcpSession) {
			if a.timer == timer { // otherwise it was stopped after it had fired
				a.timer = nil
				f()
			}
		})
	})
	a.timer = timer
}

// isSet reports whether f is still to be called.
func (a *alarm) isSet() bool { return a.timer != nil }

// stop makes the alarm call nothing, if it is set.
func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}

package conn

import (
	"testing"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// A datagram session that may be idle for long is checked seldom, but it ends as soon after its time as
// the documentation of idle_timeout says: twice the time between two checks.
func TestTurnsBetween(t *testing.T) {
	open, closing := &udpSocket{}, &udpSocket{state: udpClosing}
	for _, c := range []struct {
		idle, age time.Duration // the latter 0: no max_session_age
		socket    *udpSocket
		late      time.Duration
	}{
		{time.Second, 0, open, time.Second},
		{time.Minute - 1, 0, open, time.Second},
		{time.Minute, 0, open, 8 * time.Second},
		{2*time.Minute - 1, 0, open, 8 * time.Second},
		{2 * time.Minute, 0, open, 16 * time.Second},
		{8 * time.Minute, 0, open, 64 * time.Second},
		{1000 * time.Hour, 0, open, 64 * time.Second},
		{time.Hour, time.Minute, open, 8 * time.Second},
		{time.Hour, time.Second, open, time.Second},
		{time.Hour, 2 * time.Hour, open, 64 * time.Second},
		{time.Hour, 0, closing, time.Second}, // it ends once it is quiet
	} {
		one := udpSession{socket: c.socket, conf: &policy.Listener{IdleTimeout: unit.Duration(c.idle), MaxSessionAge: unit.Duration(c.age)}}
		if late := 2 * time.Duration(one.turnsBetween()) * janitorPeriod; late != c.late {
			t.Errorf("idle_timeout = %v, max_session_age = %v: ends up to %v late, want %v", c.idle, c.age, late, c.late)
		}
	}
}

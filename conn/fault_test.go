package conn

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/stats"
	"shaper/tests/trial"
)

func TestRatelimit(t *testing.T) {
	var r ratelimit
	now := time.Now()
	for i := range faultBurst {
		if n, ok := r.allow(now); n != 0 || !ok {
			t.Fatalf("number %d is not logged", i+1)
		}
	}
	for _, after := range []time.Duration{0, faultInterval / 2, faultInterval - 1} {
		if _, ok := r.allow(now.Add(after)); ok {
			t.Errorf("one more is logged after %v", after)
		}
	}
	if n, ok := r.allow(now.Add(faultInterval)); n != 3 || !ok {
		t.Errorf("the next interval: %v, %d suppressed, want 3", ok, n)
	}
	if n, ok := r.allow(now.Add(faultInterval)); n != 0 || !ok {
		t.Errorf("the next one: %v, %d suppressed, want none", ok, n)
	}
}

// A peer that fails again and again does not fill the log. Each fault is counted.
func TestFaultsDoNotFloodTheLog(t *testing.T) {
	const n = 3 * faultBurst
	a := newAuthority(t)
	secure := a.issue("x").terminating()
	addr, conns := listen(t)
	saying := func(text string) func(*rig) {
		return func(r *rig) { send(t, r.dial("l"), text) }
	}
	for _, c := range []struct {
		fault  fault
		result stats.Result
		policy string
		fail   func(*rig)
	}{
		{handshakeFailed, stats.TLSFailed, forward(addr, fast, secure), saying("no TLS at all")},
		{unframed, stats.Unframed, class("c", fast) + listener("l", "http", addr, "c"), func(r *rig) {
			client, _ := r.open(conns)
			send(t, client, "no HTTP\r\n\r\n")
		}},
		{tlsFailed, stats.TLSFailed, forward(addr, fast, secure), func(r *rig) {
			client := r.dial("l")
			if err := tls.Client(client, a.trusting()).Handshake(); err != nil {
				t.Error(err)
			}
			next(t, conns)
			send(t, client, "no record")
		}},
		{unreachable, stats.DialFailed, forward(closedPort(t), fast), func(r *rig) {
			if c, err := net.Dial("tcp", r.addr("l")); err == nil { // otherwise it was reset already
				c.Close()
			}
		}},
	} {
		r := run(t, c.policy)
		for range n {
			c.fail(r)
		}
		trial.Await(t, "each is counted", func() bool {
			ended := &r.service("l").stats.Ended
			return ended[c.result].Load()+ended[stats.Aborted].Load() == n // a client that has left is no fault
		})
		if got := strings.Count(r.log.String(), c.fault.String()); got < 1 || got > 2*faultBurst {
			t.Errorf("%v: logged %d times of %d", c.fault, got, n)
		}
	}
}

// If accepting fails and works in turn, as it does while descriptors are short, the log says so now
// and then only, however many listeners there are.
func TestAcceptErrorsDoNotFloodTheLog(t *testing.T) {
	addr, _ := listen(t)
	r := run(t, forward(addr, fast))
	sv := r.service("l")
	const n = 3 * faultBurst
	for range n {
		socket := &tcpSocket{server: r.Server, poller: r.pollers[0], backoff: minBackoff} // of no service: its turns do nothing
		socket.failed(sv, unix.EMFILE)
	}
	if got := sv.stats.AcceptErrors.Load(); got != n {
		t.Errorf("%d errors are counted, want %d", got, n)
	}
	if got := strings.Count(r.log.String(), "accept failed"); got < 1 || got > 2*faultBurst {
		t.Errorf("%d lines of %d errors", got, n)
	}
}

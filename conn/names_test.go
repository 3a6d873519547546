package conn

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"shaper/stats"
	"shaper/tests/trial"
)

// hang is a name server that never answers.
func hang(ctx context.Context) ([]netip.AddrPort, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Sessions whose name does not resolve hold up nobody else, in their class or of another
// listener. They end after connect_timeout.
func TestHangingNamesHoldUpNobody(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := besideHangingNames(t, class("c", fast), "3s", 20)
		trial.Await(t, "they end", func() bool { return r.service("l").stats.Ended[stats.DialFailed].Load() == 20 })
	})
}

// Nor does a name hold up a class that counts connections: a connection asks its class when it
// has an address.
func TestHangingNamesHoldUpNoConnections(t *testing.T) {
	r := besideHangingNames(t, class("c", "1000 connections/s", `overflow = "wait"`), "1h", 20)
	if got := r.sent("c", stats.Upstream).Connections.Load(); got != 20 {
		t.Errorf("the class is charged for %d connections, want the 20 that have left", got)
	}
}

// besideHangingNames checks that n connections go through a class while n others wait for a
// name that hangs until connect_timeout.
func besideHangingNames(t *testing.T, policy, timeout string, n int) *rig {
	t.Helper()
	addr, conns := listen(t)
	r := bare(t)
	r.meaning(hang)
	r.reload(policy + listener("l", "tcp", "test:1", "c", `connect_timeout = "`+timeout+`"`) + listener("sound", "tcp", addr, "c"))
	for range n {
		r.dial("l")
	}
	trial.Await(t, "they wait for the name", func() bool { return len(r.Sessions()) == n })
	for range n {
		client := r.dial("sound")
		send(t, client, "x")
		expect(t, next(t, conns), "x")
	}
	if got := len(r.Sessions()); got != 2*n {
		t.Errorf("%d sessions, want %d: those that wait for the name still do", got, 2*n)
	}
	return r
}

// A name that could not be resolved is looked up again soon. That is sooner than one whose
// answer becomes stale.
func TestNameOfDatagramsComesBack(t *testing.T) {
	t.Parallel()
	upstream := bindUDP(t, "127.0.0.1:0")
	r := bare(t)
	asked := make(chan bool, 100)
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		asked <- true
		return nil, errors.New("the name server is away")
	})
	r.reload(class("c", fast) + listener("u", "udp", "test:1", "c"))
	client := dialUDP(t, r.addr("u"))
	send(t, client, "lost")
	<-asked
	trial.Await(t, "the log says why", func() bool { return strings.Contains(r.log.String(), errNotKnown.Error()) })
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort(upstream.LocalAddr().String())}, nil
	})
	arrived := make(chan bool)
	go func() {
		if _, err := upstream.Read(make([]byte, 10)); err == nil {
			close(arrived)
		}
	}()
	trial.Await(t, "a datagram arrives", func() bool {
		client.Write([]byte("x"))
		select {
		case <-arrived:
			return true
		default:
			return false
		}
	})
}

package conn

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/upstream"
)

// silent returns an address that answers no SYN: its backlog is full.
func silent(t testing.TB) string {
	t.Helper()
	if m := memoryOf(t); m != nil {
		at := netip.MustParseAddrPort("127.0.0.1:9")
		m.Silence(at)
		return at.String()
	}
	fd, addr := boundSocket(t)
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
}

// closedPort returns an address where nobody listens during the test: a socket that does not
// listen keeps the port from all others.
func closedPort(t testing.TB) string {
	t.Helper()
	_, addr := boundSocket(t)
	return addr
}

// boundSocket returns a socket of TCP that has an address and does not listen.
func boundSocket(t testing.TB) (fd int, addr string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

// A client that leaves ends the dial.
func TestClientLeavesDuringDial(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, c tcpConn){
		"reset":              func(_ *testing.T, c tcpConn) { reset(c) },
		"reset behind bytes": func(t *testing.T, c tcpConn) { send(t, c, "GET /"); reset(c) },
		"fin":                func(_ *testing.T, c tcpConn) { c.Close() },
	} {
		t.Run(name, virtual(func(t *testing.T) {
			r := run(t, forward(silent(t), fast, `connect_timeout = "30s"`))
			client := r.dial("l")
			trial.Await(t, "there is a session", func() bool { return len(r.Sessions()) == 1 })
			start := time.Now()
			leave(t, client)
			r.awaitEnd(stats.Aborted, 1)
			if took := time.Since(start); took >= 2*time.Second {
				t.Errorf("the dial goes on for %v", took)
			}
		}))
	}
}

// A client that has sent its request and a FIN waits for the answer.
func TestHalfCloseDuringDial(t *testing.T) { virtually(t, halfCloseDuringDial) }

func halfCloseDuringDial(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward("test:1", fast))
	proceed := make(chan struct{})
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		<-proceed
		return []netip.AddrPort{netip.MustParseAddrPort(addr)}, nil
	})
	client := r.dial("l")
	send(t, client, "request")
	client.CloseWrite()
	time.Sleep(leaveGrace + 50*time.Millisecond) // nothing may happen meanwhile
	close(proceed)
	upstream := next(t, conns)
	expect(t, upstream, "request")
	expectEOF(t, upstream)
	send(t, upstream, "answer")
	upstream.Close()
	expect(t, client, "answer")
	expectEOF(t, client)
	r.awaitEnd(stats.OK, 1)
}

// The grace for a client that has sent a FIN does not delay a dial that has failed.
func TestGraceDoesNotDelay(t *testing.T) { virtually(t, graceDoesNotDelay) }

func graceDoesNotDelay(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward("test:1", fast))
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		time.Sleep(leaveGrace / 5)
		return []netip.AddrPort{netip.MustParseAddrPort(addr)}, nil
	})
	client := r.dial("l")
	client.CloseWrite()
	start := time.Now()
	expectEOF(t, next(t, conns))
	if took := time.Since(start); took >= leaveGrace {
		t.Errorf("the FIN comes after %v", took)
	}
}

func TestSessionEndedDuringDial(t *testing.T) { virtually(t, sessionEndedDuringDial) }

func sessionEndedDuringDial(t *testing.T) {
	r := run(t, forward(silent(t), fast, `connect_timeout = "30s"`))
	client := r.dial("l")
	trial.Await(t, "there is a session", func() bool { return len(r.Sessions()) == 1 })
	r.CloseSession(r.Sessions()[0].ID)
	expectReset(t, client)
	r.awaitEnd(stats.ByOperator, 1)
	if strings.Contains(r.log.String(), "no upstream") {
		t.Error("the log blames the upstream")
	}
}

// quoted returns a list of upstreams, as listener takes it.
func quoted(upstreams ...string) string {
	return class("c", fast) + "[listener.l]\nlisten = \"127.0.0.1:0\"\nclass = \"c\"\nconnect_timeout = \"200ms\"\nupstream = [\"" +
		strings.Join(upstreams, `", "`) + "\"]\n"
}

func TestUpstreamsAreTriedInOrder(t *testing.T) {
	second, conns := listen(t)
	third, never := listen(t)
	for _, first := range []string{closedPort(t), silent(t)} {
		r := run(t, quoted(first, second, third))
		client := r.dial("l")
		upstream := next(t, conns)
		send(t, client, "x")
		expect(t, upstream, "x")
		if got := r.Sessions()[0].Upstream; got != second {
			t.Errorf("the session goes to %s, want %s", got, second)
		}
	}
	if len(never) > 0 {
		t.Error("the third upstream was tried")
	}
}

func TestNoUpstreamCanBeReached(t *testing.T) {
	closed, mute := closedPort(t), silent(t)
	r := run(t, quoted(closed, mute, closed))
	watch, start := trial.Begin(), time.Now()
	r.expectRefused("l")
	took := time.Since(start)
	if took < 200*time.Millisecond {
		t.Errorf("it took %v, want the connect_timeout of the second", took)
	}
	watch.Below(t, "the dial", took, 2*time.Second)
	r.awaitEnd(stats.DialFailed, 1)
	if !strings.Contains(r.log.String(), "connection refused") || !strings.Contains(r.log.String(), "i/o timeout") {
		t.Errorf("the log lacks one of the errors: %s", r.log)
	}
}

// If a name has no address that bind can reach, the log says so.
func TestBindOfAnotherFamily(t *testing.T) {
	r := run(t, forward("test:1", fast, `bind = "127.0.0.1"`))
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort("[::1]:9")}, nil
	})
	r.expectRefused("l")
	r.awaitEnd(stats.DialFailed, 1)
	if want := "dial test:1: " + upstream.ErrFamily.Error(); !strings.Contains(r.log.String(), want) {
		t.Errorf("the log lacks %q: %s", want, r.log)
	}
}

// If a rule asks for the destination, names are resolved first.
func TestClassByDestination(t *testing.T) {
	addr, conns := listen(t)
	_, port, _ := net.SplitHostPort(addr)
	text := class("c", fast) + class("near", fast) + class("far", fast) +
		listener("l", "tcp", "localhost:"+port, "c") + listener("echo", "tcp", policy.Echo, "c")
	rules := "[[rule]]\ndestination = \"127.0.0.0/8\"\nclass = \"near\"\n[[rule]]\ndestination = \"::1\"\nclass = \"near\"\n"
	r := run(t, text+rules)
	r.open(conns)
	r.dial("echo")
	classOf := func(listener string) string {
		for _, one := range r.Sessions() {
			if one.Listener == listener {
				return one.Class
			}
		}
		return ""
	}
	trial.Await(t, "both are classified", func() bool { return classOf("l") == "near" && classOf("echo") == "c" })

	// The class and its rules go. The destination is still known.
	r.reload(strings.ReplaceAll(strings.ReplaceAll(text+rules, "[class.near]", "[class.other]"), `"near"`, `"far"`))
	if got := classOf("l"); got != "far" {
		t.Errorf("the session is in %q, want far", got)
	}
}

// A session without a descriptor waits for one, for connect_timeout at most: sessions that
// wait for a permit may have them all.
func TestDialWithoutDescriptors(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "tcp", addr, "c", `connect_timeout = "2s"`))
	first, upstream := r.open(conns)
	second := r.dial("l")
	send(t, second, "patient")
	trial.Await(t, "it waits", func() bool { return len(r.Sessions()) == 2 })
	restore := withoutDescriptors(t)
	first.Close()
	upstream.Close()
	r.awaitEndOf(stats.OK, 1)
	r.awaitRetry()
	restore()
	upstream = next(t, conns)
	expect(t, upstream, "patient")

	third := r.dial("l")
	send(t, third, "in vain")
	trial.Await(t, "it waits", func() bool { return len(r.Sessions()) == 2 })
	watch := trial.Begin() // it reads files
	restore = withoutDescriptors(t)
	start := time.Now()
	second.Close()
	upstream.Close()
	r.awaitEndOf(stats.DialFailed, 1)
	took := time.Since(start)
	restore()
	if took < 2*time.Second {
		t.Errorf("it was given up after %v", took)
	}
	watch.Below(t, "giving up", took, 4*time.Second)
}

// withoutDescriptors makes the process run out of descriptors, until restored.
func withoutDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	restore = func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }
	t.Cleanup(restore)
	return restore
}

// A reload lets a connection go that waited for its class, and the session ends before it dials.
// The new class does not wait for it.
func TestReloadedConnectionThatEndsIsNotAwaited(t *testing.T) {
	virtually(t, func(t *testing.T) {
		addr, conns := listen(t)
		r := run(t, class("c", "1 connections/h")+listener("l", "tcp", addr, "c"))
		r.open(conns)
		r.dial("l")
		var s *tcpSession
		trial.Await(t, "a connection waits", func() bool {
			for _, one := range r.sessions.all() {
				one.(*tcpSession).do(func(one *tcpSession) {
					if one.stage == opening && one.up.waiting {
						s = one
					}
				})
			}
			return s != nil
		})
		busy := &busyTurn{begun: make(chan bool), end: make(chan bool)}
		s.poller.Revisit(busy) // so that the session has no turn
		<-busy.begun
		r.reload(class("d", "100 connections/s") + listener("l", "tcp", addr, "d"))
		s.abort(stats.Aborted)
		close(busy.end)
		began := time.Now()
		r.dial("l")
		next(t, conns)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the next connection takes %v, want 10 ms at most", took)
		}
	})
}

// A busyTurn keeps the poller busy.
type busyTurn struct {
	sock.Due
	begun, end chan bool
}

func (b *busyTurn) Turn() {
	close(b.begun)
	<-b.end
}

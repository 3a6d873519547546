package conn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

// A FIN leaves after the bytes that wait, and the other direction goes on.
func TestHalfCloseOfClient(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "100kB/s"))
	client, upstream := r.open(conns)
	request := strings.Repeat("request ", 4000) // a third of a second
	send(t, client, request)
	client.CloseWrite()
	expect(t, upstream, request)
	expectEOF(t, upstream)
	send(t, upstream, "answer")
	expect(t, client, "answer")
	send(t, upstream, "more")
	expect(t, client, "more")
	upstream.Close()
	expectEOF(t, client)
	r.awaitEnd(stats.OK, 1)
	if n := r.sent("c", stats.Upstream).Bytes.Load(); n != uint64(len(request)) {
		t.Errorf("%d bytes are counted, want %d", n, len(request))
	}
}

func TestHalfCloseOfUpstream(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast, `return_class = "back"`)+class("back", "100kB/s"))
	client, upstream := r.open(conns)
	answer := strings.Repeat("answer ", 4000)
	send(t, upstream, answer)
	upstream.CloseWrite()
	expect(t, client, answer)
	expectEOF(t, client)
	send(t, client, "still here")
	expect(t, upstream, "still here")
	client.Close()
	expectEOF(t, upstream)
	r.awaitEnd(stats.OK, 1)
	if n := r.sent("back", stats.Downstream).Bytes.Load(); n != uint64(len(answer)) {
		t.Errorf("%d bytes are counted, want %d", n, len(answer))
	}
}

// After a FIN, half_close_timeout bounds how long the session may be idle.
func TestHalfClosedSessionTimesOut(t *testing.T) { virtually(t, halfClosedSessionTimesOut) }

func halfClosedSessionTimesOut(t *testing.T) {
	for _, l := range [][]string{
		{"tcp", `idle_timeout = "600ms"`},
		{"tcp", `half_close_timeout = "600ms"`},
		{"tcp", `idle_timeout = "600ms"`, `half_close_timeout = "1h"`},
		{"lines", `half_close_timeout = "600ms"`},
	} {
		addr, conns := listen(t)
		r := run(t, class("c", fast)+listener("l", l[0], addr, "c", l[1:]...))
		client, upstream := r.open(conns)
		client.CloseWrite()
		expectEOF(t, upstream)
		expectReset(t, client)
		client, upstream = r.open(conns)
		upstream.CloseWrite()
		expectEOF(t, client)
		expectReset(t, upstream)
		r.awaitEnd(stats.TimedOut, 2)
	}
}

// A half-closed session lives as long as half_close_timeout says, and longer if something moves.
func TestHalfClosedSessionLives(t *testing.T) { virtually(t, halfClosedSessionLives) }

func halfClosedSessionLives(t *testing.T) {
	for _, protocol := range []string{"tcp", "lines"} {
		addr, conns := listen(t)
		r := run(t, class("c", fast)+listener("l", protocol, addr, "c", `idle_timeout = "2h"`, `half_close_timeout = "1h"`))
		client, upstream := r.open(conns)
		client.SetDeadline(time.Now().Add(3 * time.Hour))
		upstream.SetDeadline(time.Now().Add(3 * time.Hour))
		client.CloseWrite()
		expectEOF(t, upstream)
		time.Sleep(59 * time.Minute)
		send(t, upstream, "x\n")
		expect(t, client, "x\n")
		last := time.Now()
		expectReset(t, client)
		if after := time.Since(last); after < time.Hour || after > time.Hour+time.Minute {
			t.Errorf("%s: the session ends %v after the last byte", protocol, after)
		}
		r.awaitEnd(stats.TimedOut, 1)
	}
}

// half_close_timeout does not bound a session that is open in both directions.
func TestHalfCloseTimeoutIsForOneDirection(t *testing.T) {
	virtually(t, halfCloseTimeoutIsForOneDirection)
}

func halfCloseTimeoutIsForOneDirection(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast, `half_close_timeout = "100ms"`))
	client, upstream := r.open(conns)
	half, _ := r.open(conns)
	half.CloseWrite()
	expectReset(t, half) // the other one has been silent for as long
	send(t, client, "x")
	expect(t, upstream, "x")
}

// A reset by one peer reaches the other as a reset.
func TestResetGoesOn(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast))
	client, upstream := r.open(conns)
	send(t, client, "x")
	expect(t, upstream, "x")
	reset(client)
	expectReset(t, upstream)
	r.awaitEnd(stats.ResetByPeer, 1)

	client, upstream = r.open(conns)
	send(t, upstream, "x")
	expect(t, client, "x")
	reset(upstream)
	expectReset(t, client)
	r.awaitEnd(stats.ResetByPeer, 2)
}

// A session whose bytes wait for a class ends with its client, and never looks complete. What
// it held counts as dropped.
func TestResetWhileWaiting(t *testing.T) { virtually(t, resetWhileWaiting) }

func resetWhileWaiting(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "0B/s", `idle_timeout = "100ms"`))
	client, upstream := r.open(conns)
	send(t, client, "held back")
	r.awaitWaiting(9)
	reset(client)
	expectReset(t, upstream)
	r.awaitEnd(stats.ResetByPeer, 1)
	if items, n := r.dropped("c", stats.Reset); items != 1 || n != 9 {
		t.Errorf("dropped %d items of %d bytes, want 1 of 9", items, n)
	}
	if n := r.shaper.Class("c").Backlog().Items; n != 0 {
		t.Errorf("%d items still wait", n)
	}
}

// awaitWaiting waits until the only session holds so many bytes.
func (r *rig) awaitWaiting(n int64) {
	r.t.Helper()
	trial.Await(r.t, "bytes wait", func() bool { return len(r.Sessions()) == 1 && r.Sessions()[0].Waiting == n })
}

// The same if the upstream, and not the class, holds the bytes up.
func TestResetWhileStalled(t *testing.T) { virtually(t, resetWhileStalled) }

func resetWhileStalled(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast))
	client, upstream := r.open(conns)
	fill(t, client)
	reset(client)
	r.awaitEnd(stats.ResetByPeer, 1)
	expectReset(t, upstream)
	if items, n := r.dropped("c", stats.Reset); items != 1 || n == 0 {
		t.Errorf("dropped %d items of %d bytes, want 1", items, n)
	}
}

// fill writes until the other end takes no more bytes.
func fill(t testing.TB, c net.Conn) {
	t.Helper()
	data := make([]byte, 1<<20)
	for {
		c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := c.Write(data); err != nil {
			c.SetWriteDeadline(time.Time{})
			return
		}
	}
}

// However a session is ended, both peers see that it was not complete. The bytes that it held
// are counted by reason.
func TestTruncationIsAReset(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(*rig)
		result stats.Result
		reason stats.Reason
	}{
		{"operator", func(r *rig) { r.CloseSession(r.Sessions()[0].ID) }, stats.ByOperator, stats.Closed},
		{"drain", func(r *rig) { r.Shutdown(expired) }, stats.Drained, stats.Stopped},
		{"timeout", func(r *rig) { r.one().abort(stats.TimedOut) }, stats.TimedOut, stats.Timeout},
		{"panic", func(r *rig) { r.one().abort(stats.Panicked) }, stats.Panicked, stats.Reset},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, forward(addr, "0B/s"))
			client, upstream := r.open(conns)
			send(t, client, "held back")
			client.CloseWrite()
			r.awaitWaiting(9)
			c.end(r)
			expectReset(t, client)
			expectReset(t, upstream)
			r.awaitEnd(c.result, 1)
			if items, n := r.dropped("c", c.reason); items != 1 || n != 9 {
				t.Errorf("dropped %d items of %d bytes for %v, want 1 of 9", items, n, c.reason)
			}
		})
	}
}

// one returns the only session.
func (r *rig) one() *tcpSession { return r.sessions.all()[0].(*tcpSession) }

func TestCloseSessionThatIsNot(t *testing.T) {
	r := run(t, forward(policy.Echo, fast))
	if _, closed := r.CloseSession(7); closed {
		t.Error("a session that there is not was closed")
	}
}

func TestIdleTimeout(t *testing.T) { virtually(t, idleTimeout) }

func idleTimeout(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast, `idle_timeout = "700ms"`))
	client, upstream := r.open(conns)
	start := time.Now()
	for range 8 { // each direction in turn keeps the session alive
		time.Sleep(150 * time.Millisecond)
		send(t, client, "x")
		expect(t, upstream, "x")
	}
	expectReset(t, client)
	expectReset(t, upstream)
	if took := time.Since(start); took < 1900*time.Millisecond {
		t.Errorf("the session ended after %v", took)
	}
	r.awaitEnd(stats.TimedOut, 1)
}

// A session that waits for its class is not idle.
func TestWaitingIsNotIdle(t *testing.T) { virtually(t, waitingIsNotIdle) }

func waitingIsNotIdle(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "8B/s", `idle_timeout = "500ms"`))
	client, upstream := r.open(conns)
	send(t, client, "first of sixteen")
	expect(t, upstream, "first of sixteen")
	send(t, client, "second") // leaves after two seconds
	expect(t, upstream, "second")
}

// A peer that stops reading holds up only its own session, and not forever.
func TestStalledReader(t *testing.T) { virtually(t, stalledReader) }

func stalledReader(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast, `idle_timeout = "600ms"`))
	stalled, _ := r.open(conns)
	go fill(t, stalled)
	client, upstream := r.open(conns)
	for range 20 {
		send(t, client, "ping")
		expect(t, upstream, "ping")
		time.Sleep(50 * time.Millisecond)
	}
	client.Close()
	upstream.Close()
	r.awaitEndOf(stats.TimedOut, 1)
	r.awaitEndOf(stats.OK, 1)
}

func (r *rig) awaitEndOf(result stats.Result, n uint64) {
	r.t.Helper()
	trial.Await(r.t, "ended: "+result.String(), func() bool { return r.service("l").stats.Ended[result].Load() == n })
}

// breakDirection makes a direction of the only session panic when it is driven next.
func (r *rig) breakDirection(d *direction) {
	d.session.mu.Lock()
	defer d.session.mu.Unlock()
	d.dst = nil
}

// A panic ends its own session, wherever it happens, and no other. In a lookup, which is that
// of all sessions, it counts as no answer.
func TestPanicEndsOneSession(t *testing.T) {
	addr, conns := listen(t)
	text := forward(addr, fast) + listener("name", "tcp", "test:1", "c")
	r := run(t, text)
	client, upstream := r.open(conns)
	r.breakDirection(&r.one().down)
	send(t, upstream, "x")
	expectReset(t, client)
	expectReset(t, upstream)
	r.awaitEndOf(stats.Panicked, 1)

	other, otherUpstream := r.open(conns)
	r.meaning(func(context.Context) ([]netip.AddrPort, error) { panic("in the dial") })
	r.expectRefused("name")
	trial.Await(t, "it has ended", func() bool { return r.service("name").stats.Ended[stats.DialFailed].Load() == 1 })

	send(t, other, "alive")
	expect(t, otherUpstream, "alive")
	for _, where := range []string{"(*direction).write", "in the dial"} {
		if !strings.Contains(r.log.String(), where) {
			t.Errorf("the panic %s is not logged", where)
		}
	}
}

// The same holds before the session is driven: the poller goes on accepting.
func TestPanicAtTheStart(t *testing.T) {
	r := run(t, forward(policy.Echo, fast))
	at := r.addr("l")
	r.routing.mu.Lock()
	routes := r.routing.routes
	r.routing.routes = nil
	r.routing.mu.Unlock()
	if err := shortEcho(at); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want ECONNRESET", err)
	}
	r.awaitEnd(stats.Panicked, 1)
	r.routing.mu.Lock()
	r.routing.routes = routes
	r.routing.mu.Unlock()
	if err := shortEcho(at); err != nil {
		t.Error(err)
	}
}

// The same holds in the pacer's goroutine: it ends the session whose bytes it moves.
func TestPanicInThePacer(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "0B/s"))
	client, upstream := r.open(conns)
	send(t, client, "12345")
	r.awaitWaiting(5)
	r.breakDirection(&r.one().up)
	r.reload(forward(addr, fast)) // the pacer lets it go
	expectReset(t, client)
	expectReset(t, upstream)
	r.awaitEnd(stats.Panicked, 1)
	if items, n := r.dropped("c", stats.Reset); items != 1 || n != 5 {
		t.Errorf("dropped %d items of %d bytes, want 1 of 5", items, n)
	}
	if !strings.Contains(r.log.String(), "(*pacer).run") {
		t.Error("the panic was elsewhere")
	}
	client, upstream = r.open(conns)
	send(t, client, "the pacer lives on")
	expect(t, upstream, "the pacer lives on")
}

// A reset while bytes go both ways is passed on as a reset, whichever direction meets it. The
// kernel reports it once, and after that reads find an end.
func TestResetIsNeverAnEnd(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "8gbit"))
	piece := make([]byte, 1<<20)
	for range 300 {
		client, upstream := r.open(conns)
		go func() {
			client.Write(piece[:200_000])
			client.SetLinger(0)
			client.Close()
		}()
		_, err := upstream.Write(piece)
		if err == nil {
			_, err = io.Copy(io.Discard, upstream)
		}
		if err == nil {
			t.Fatal("the upstream sees an end")
		}
		upstream.Close()
	}
}

// What a direction holds when it panics is counted as dropped, too.
func TestPanicCountsWhatWasHeld(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast))
	client, upstream := r.open(conns)
	r.breakDirection(&r.one().up)
	send(t, client, "12345")
	expectReset(t, client)
	expectReset(t, upstream)
	r.awaitEnd(stats.Panicked, 1)
	if items, n := r.dropped("c", stats.Reset); items != 1 || n != 5 {
		t.Errorf("dropped %d items of %d bytes, want 1 of 5", items, n)
	}
}

func TestEcho(t *testing.T) {
	r := run(t, forward(policy.Echo, fast))
	client := r.dial("l")
	for _, text := range []string{"hello", strings.Repeat("long", 100_000)} {
		go io.WriteString(client, text)
		expect(t, client, text)
	}
	client.CloseWrite()
	expectEOF(t, client)
	r.awaitEnd(stats.OK, 1)
}

func TestDiscard(t *testing.T) {
	r := run(t, forward(policy.Discard, fast))
	client := r.dial("l")
	send(t, client, strings.Repeat("x", 1<<20))
	client.CloseWrite()
	if n, err := io.Copy(io.Discard, client); n != 0 || err != nil {
		t.Errorf("it answers %d bytes, %v", n, err)
	}
	r.awaitEnd(stats.OK, 1)
	if n := r.sent("c", stats.Upstream).Bytes.Load(); n != 1<<20 {
		t.Errorf("%d bytes are counted, want %d", n, 1<<20)
	}
}

// What comes after urgent data passes, although reads stop there. telnet and FTP interrupt in
// that way. The urgent byte itself is outside of the stream.
func TestUrgentData(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast))
	client, upstream := r.open(conns)
	raw, err := client.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		for _, before := range []string{"before", strings.Repeat("before", 20_000)} {
			send(t, client, before)
			raw.Control(func(fd uintptr) { unix.Send(int(fd), []byte("!"), unix.MSG_OOB) })
			send(t, client, "behind")
			expect(t, upstream, before+"behind")
		}
	}
	client.CloseWrite()
	expectEOF(t, upstream)
}

// A panic in a built-in upstream ends the session that it serves. After a panic in a lookup,
// the name has no address until the next lookup.
func TestPanicElsewhere(t *testing.T) {
	discard := builtins[policy.Discard]
	builtins[policy.Discard] = func(c net.Conn) {
		io.ReadFull(c, make([]byte, 1))
		panic("built in")
	}
	defer func() { builtins[policy.Discard] = discard }()
	r := run(t, class("c", fast)+listener("l", "tcp", policy.Discard, "c"))
	client, other := r.dial("l"), r.dial("l")
	send(t, client, "x")
	expectReset(t, client)
	r.awaitEndOf(stats.Panicked, 1)
	r.meaning(func(context.Context) ([]netip.AddrPort, error) { panic("in the lookup") })
	r.reload(class("c", fast) + listener("l", "tcp", policy.Discard, "c") + listener("u", "udp", "test:1", "c"))
	trial.Await(t, "the panic is logged", func() bool { return strings.Contains(r.log.String(), "in the lookup") })
	trial.Await(t, "the lookup is over", func() bool {
		_, _, err := r.names.Seen("test:1")
		return err != nil
	})
	send(t, dialUDP(t, r.addr("u")), "x")
	trial.Await(t, "it has no upstream", func() bool { return r.service("u").stats.Ended[stats.DialFailed].Load() == 1 })
	send(t, other, "x")
	expectReset(t, other)
	r.awaitEndOf(stats.Panicked, 2)
}

// A session that ends while its bytes are in a pipe counts them and gives the pipe back. A
// test of Cargo shows that the pipe is empty.
func TestSessionEndsWithBytesInAPipe(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "1GB/s"))
	pipes := len(r.pipes)
	client, upstream := r.open(conns)
	one := r.one()
	fill(t, client)
	trial.Await(t, "bytes stay in a pipe", func() bool {
		if one.upIsStalled() && len(r.pipes) == pipes-1 {
			return true
		}
		io.CopyN(io.Discard, upstream, 64<<10) // what stays may be a small piece, which is in a buffer: others follow
		fill(t, client)
		return false
	})
	held := uint64(one.info().Waiting)
	one.abort(stats.ByOperator)
	expectReset(t, client)
	upstream.Close()
	r.awaitEnd(stats.ByOperator, 1)
	if _, n := r.dropped("c", stats.Closed); n == 0 || n > held {
		t.Errorf("dropped %d bytes of %d that were held", n, held)
	}
	if len(r.pipes) != pipes {
		t.Errorf("%d of %d pipes are free", len(r.pipes), pipes)
	}
}

// upIsStalled reports whether the upstream has no room for what the session holds for it.
func (t *tcpSession) upIsStalled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	up := t.up.carrier.(*stream)
	return up.stalled && up.held() > 0
}

// If an upstream resets the connection, what the session has read of its answer arrives, however
// long that takes through its class, and whatever its client does meanwhile.
func TestResetLosesNothing(t *testing.T) {
	for name, meanwhile := range map[string]func(tcpConn){
		"the client listens":     func(tcpConn) {},
		"the client sends":       func(client tcpConn) { io.WriteString(client, "more") },
		"the client half-closes": func(client tcpConn) { client.CloseWrite() },
	} {
		t.Run(name, virtual(func(t *testing.T) { resetLosesNothing(t, meanwhile) }))
	}
}

func resetLosesNothing(t *testing.T, meanwhile func(client tcpConn)) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast, `return_class = "back"`)+class("back", "200B/s"))
	client, upstream := r.open(conns)
	data := noise(6000)
	send(t, upstream, string(data))
	synctest.Wait()
	reset(upstream)
	synctest.Wait()
	meanwhile(client)
	got := make([]byte, len(data))
	if n, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes arrive, %v", n, len(data), err)
	}
	expectReset(t, client)
	r.awaitEnd(stats.ResetByPeer, 1)
}

// So it is with an answer, if its client asks for more.
func TestResetLosesNoAnswer(t *testing.T) { virtually(t, resetLosesNoAnswer) }

func resetLosesNoAnswer(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast)+class("back", "200B/s")+listener("l", "http", addr, "c", `return_class = "back"`))
	client, upstream := r.open(conns)
	const ask = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	answer := "HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n" + strings.Repeat("x", 6000)
	send(t, client, ask)
	expect(t, upstream, ask)
	send(t, upstream, answer)
	synctest.Wait()
	reset(upstream)
	synctest.Wait()
	send(t, client, ask)
	expect(t, client, answer)
	expectReset(t, client)
	r.awaitEnd(stats.ResetByPeer, 1)
}

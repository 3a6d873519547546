package conn

import (
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

// If max_connections of a class are open, the next session waits until one ends. The bound of
// a parent holds for all its children together. A reload that raises it lets sessions in at
// once.
func TestMaxConnections(t *testing.T) {
	addr, conns := listen(t)
	text := func(bound string) string {
		return class("p", fast, "max_connections = "+bound) + class("c", fast, `parent = "p"`) + class("d", fast, `parent = "p"`) +
			listener("l", "tcp", addr, "c") + listener("m", "tcp", policy.Echo, "d")
	}
	r := run(t, text("2"))
	first, upstream := r.open(conns)
	other := r.dial("m")
	send(t, other, "x")
	expect(t, other, "x")
	third := r.dial("l")
	send(t, third, "third")
	trial.Await(t, "it waits", func() bool { return len(r.Sessions()) == 3 })
	if n := r.shaper.Class("p").Sessions(); n != 2 || len(conns) != 0 {
		t.Errorf("%d are open", n)
	}
	first.Close()
	upstream.Close()
	expect(t, next(t, conns), "third")

	fourth := r.dial("l")
	send(t, fourth, "fourth")
	trial.Await(t, "it waits", func() bool { return len(r.Sessions()) == 3 })
	r.reload(text("3"))
	expect(t, next(t, conns), "fourth")
}

// A class that refuses resets sessions without a permit. A session that leaves while it waits
// gives up its place in the queue.
func TestMaxConnectionsRefused(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1", `overflow = "refuse"`)+listener("l", "tcp", addr, "c"))
	first, upstream := r.open(conns)
	r.expectRefused("l")
	r.awaitEndOf(stats.Overflow, 1)
	first.Close()
	upstream.Close()
	r.awaitEndOf(stats.OK, 1)
	r.open(conns)
	if n := r.shaper.Class("c").Stats.Refused[stats.QueueFull].Items.Load(); n != 1 {
		t.Errorf("%d are counted as refused", n)
	}
}

// A client that ends its session and connects again at once is not refused, though shaper sees the new connection
// first. If no session ends, the new one is refused after reconnectGrace.
func TestReconnectingAtOnce(t *testing.T) { virtually(t, reconnectingAtOnce) }

func reconnectingAtOnce(t *testing.T) {
	addr, conns := listen(t)
	for _, c := range []struct {
		ends    time.Duration // when the first session ends
		refused bool
	}{{time.Millisecond, false}, {reconnectGrace - time.Millisecond, false}, {reconnectGrace + time.Millisecond, true}} {
		r := run(t, class("p", fast, "max_connections = 1", `overflow = "refuse"`)+class("c", fast, `parent = "p"`, `overflow = "refuse"`)+
			listener("l", "tcp", addr, "c"))
		first, upstream := r.open(conns)
		began := time.Now()
		second := r.dial("l")
		send(t, second, "again")
		trial.Await(t, "it waits", func() bool { return len(r.Sessions()) == 2 })
		ended := make(chan struct{})
		time.AfterFunc(c.ends-time.Since(began), func() { first.Close(); upstream.Close(); close(ended) })
		if c.refused {
			expectReset(t, second)
			if took := time.Since(began); took < reconnectGrace || took > reconnectGrace+time.Millisecond {
				t.Errorf("it is refused after %v", took)
			}
		} else {
			expect(t, next(t, conns), "again")
			time.Sleep(2 * reconnectGrace) // nothing may happen
			if n := len(r.Sessions()); n != 1 {
				t.Errorf("%d sessions are open, want the second", n)
			}
		}
		<-ended
		trial.Await(t, "the first has ended", func() bool { return r.service("l").stats.Ended[stats.OK].Load() == 1 })
		refused := r.shaper.Class("c").Stats.Refused[stats.QueueFull].Items.Load()
		if got := refused == 1; got != c.refused || refused > 1 {
			t.Errorf("the first ends after %v: %d are counted as refused", c.ends, refused)
		}
		second.Close()
	}
}

func TestResetWhileWaitingForAPermit(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast)+class("one", fast, "max_connections = 1")+listener("m", "tcp", addr, "one"))
	first, second, third := r.dial("m"), r.dial("m"), r.dial("m")
	send(t, first, "1")
	send(t, third, "3")
	upstream := next(t, conns)
	trial.Await(t, "two wait", func() bool { return len(r.Sessions()) == 3 })
	reset(second)
	trial.Await(t, "one has left", func() bool { return r.service("m").stats.Ended[stats.Aborted].Load() == 1 })
	reset(first)
	expectReset(t, upstream)
	expect(t, next(t, conns), "3")
}

// A UDP session without a permit does not wait for one.
func TestMaxConnectionsOfDatagrams(t *testing.T) {
	t.Parallel()
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "udp", policy.Echo, "c", `idle_timeout = "1s"`))
	first, second := dialUDP(t, r.addr("l")), dialUDP(t, r.addr("l"))
	send(t, first, "x")
	expectDatagram(t, first, "x")
	send(t, second, "y")
	trial.Await(t, "it is dropped", func() bool { n, _ := r.dropped("c", stats.NoSession); return n == 1 })
	if got := &r.service("l").stats.Ended; got[stats.Overflow].Load() != 1 || got[stats.DialFailed].Load() != 0 {
		t.Error("it does not count as refused")
	}
	trial.Await(t, "the first has ended", func() bool { return len(r.Sessions()) == 0 })
	send(t, second, "z")
	expectDatagram(t, second, "z")
}

// If a class is removed, its sessions take their permits along to the new class.
func TestPermitsOfARemovedClass(t *testing.T) { virtually(t, permitsOfARemovedClass) }

func permitsOfARemovedClass(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "tcp", addr, "c"))
	r.open(conns)
	waits := r.dial("l")
	send(t, waits, "waits")
	trial.Await(t, "it waits", func() bool { return len(r.Sessions()) == 2 })
	r.reload(class("d", fast, "max_connections = 2") + listener("l", "tcp", addr, "d"))
	expect(t, next(t, conns), "waits")
	if n := r.shaper.Class("d").Sessions(); n != 2 {
		t.Errorf("%d are open in the new class", n)
	}
	third := r.dial("l")
	trial.Await(t, "the third waits", func() bool { return len(r.Sessions()) == 3 })
	time.Sleep(20 * time.Millisecond) // nothing may happen meanwhile
	if n := r.shaper.Class("d").Sessions(); n != 2 {
		t.Errorf("%d are open in the new class", n)
	}
	reset(third) // otherwise it gets a permit when the others end
	trial.Await(t, "it has left", func() bool { return len(r.Sessions()) == 2 })
}

// A client that has sent a FIN and nothing else stops waiting after leaveGrace. A client stops
// waiting after max_wait.
func TestLeavingTheQueueForAPermit(t *testing.T) { virtually(t, leavingTheQueueForAPermit) }

func leavingTheQueueForAPermit(t *testing.T) {
	addr, conns := listen(t)
	for _, test := range []struct {
		key, sends string
		leaves     func(tcpConn)
		result     stats.Result
	}{
		{"", "", func(c tcpConn) { c.Close() }, stats.Aborted},
		{"", "", func(c tcpConn) { c.CloseWrite() }, stats.Aborted},
		{"", "bytes", reset, stats.Aborted},
		{`max_wait = "50ms"`, "bytes", func(tcpConn) {}, stats.Overflow},
	} {
		r := run(t, class("c", fast, "max_connections = 1", test.key)+listener("l", "tcp", addr, "c"))
		first, upstream := r.open(conns)
		second := r.dial("l")
		send(t, second, test.sends)
		trial.Await(t, "it waits", func() bool { return len(r.Sessions()) == 2 })
		test.leaves(second)
		r.awaitEndOf(test.result, 1)
		send(t, first, "still here")
		expect(t, upstream, "still here")
		first.Close()
		upstream.Close()
		r.open(conns)
	}
}

// A session that waits for a permit does so for as long, from the beginning of its wait, as its class says after a reload that
// changes the class or moves the session.
func TestReloadBoundsTheWaitForAPermit(t *testing.T) {
	for _, c := range []struct {
		what, before, name, after string
		waits                     time.Duration // since its beginning; 0: for ever
		reason                    stats.Reason
	}{
		{"a bound where there was none", "", "c", `max_wait = "30s"`, 30 * time.Second, stats.MaxWait},
		{"a bound that has passed", `max_wait = "1h"`, "c", `max_wait = "5s"`, 10 * time.Second, stats.MaxWait},
		{"a longer one", `max_wait = "20s"`, "c", `max_wait = "40s"`, 40 * time.Second, stats.MaxWait},
		{"none", `max_wait = "20s"`, "c", "", 0, 0},
		{"another class", `max_wait = "1h"`, "d", `max_wait = "30s"`, 30 * time.Second, stats.MaxWait},
		{"it refuses", "", "c", `overflow = "refuse"`, 10 * time.Second, stats.QueueFull},
	} {
		t.Run(c.what, virtual(func(t *testing.T) {
			addr, conns := listen(t)
			text := func(name, key string) string {
				return class(name, fast, "max_connections = 1", key) + listener("l", "tcp", addr, name)
			}
			r := run(t, text("c", c.before))
			r.open(conns)
			began := time.Now()
			send(t, r.dial("l"), "waits")
			time.Sleep(10 * time.Second)
			r.reload(text(c.name, c.after))
			sessions := func() int { synctest.Wait(); return len(r.Sessions()) }
			if c.waits == 0 {
				if time.Sleep(time.Minute); sessions() != 2 {
					t.Error("it does not wait for ever")
				}
				return
			}
			time.Sleep(c.waits - time.Since(began) - time.Millisecond)
			if n := sessions(); n != 2 && time.Since(began) > 10*time.Second {
				t.Errorf("after %v, %d sessions are open, want the one that waits, too", time.Since(began), n)
			}
			time.Sleep(time.Millisecond)
			n, refused := sessions(), r.shaper.Class(c.name).Stats.Refused[c.reason].Items.Load()
			if n != 1 || refused != 1 {
				t.Errorf("after %v, %d sessions are open, and %d are counted as refused", time.Since(began), n, refused)
			}
		}))
	}
}

// What a client has sent waits with it, even after its FIN. A client that gets its permit in
// time is no longer bound by max_wait.
func TestWaitingForAPermitWithAnEnd(t *testing.T) { virtually(t, waitingForAPermitWithAnEnd) }

func waitingForAPermitWithAnEnd(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1", `max_wait = "1s"`)+listener("l", "tcp", addr, "c"))
	first, upstream := r.open(conns)
	second := r.dial("l")
	send(t, second, "request")
	second.CloseWrite()
	trial.Await(t, "it waits", func() bool { return len(r.Sessions()) == 2 })
	time.Sleep(leaveGrace + 100*time.Millisecond) // nothing may happen meanwhile
	first.Close()
	upstream.Close()
	upstream = next(t, conns)
	expect(t, upstream, "request")
	time.Sleep(time.Second) // max_wait passes, and nothing may happen
	send(t, upstream, "answer")
	expect(t, second, "answer")
}

// Sessions that wait when the server stops do not start when the others end.
func TestShutdownWithWaiters(t *testing.T) { virtually(t, shutdownWithWaiters) }

func shutdownWithWaiters(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "tcp", addr, "c"))
	r.open(conns)
	const n = 100
	for range n {
		send(t, r.dial("l"), "x")
	}
	trial.Await(t, "all wait", func() bool { return len(r.Sessions()) == n+1 })
	if reset := r.Shutdown(expired); reset != n+1 {
		t.Errorf("%d are reset", reset)
	}
	if len(conns) != 0 {
		t.Errorf("%d reached the upstream after all", len(conns))
	}
}

// Sessions that a reload moves go on waiting in the order in which they came.
func TestReloadKeepsTheOrder(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "tcp", addr, "c"))
	client, upstream := r.open(conns)
	const n = 30
	for i := range n {
		c := r.dial("l")
		send(t, c, string(rune('A'+i)))
		trial.Await(t, "it waits", func() bool { return len(r.Sessions()) == i+2 })
		defer c.Close()
	}
	r.reload(class("d", fast, "max_connections = 1") + listener("l", "tcp", addr, "d"))
	if n := r.shaper.Class("d").Sessions(); n != 1 {
		t.Errorf("%d are open in the new class", n)
	}
	client.Close()
	upstream.Close()
	for i := range n {
		upstream := next(t, conns)
		expect(t, upstream, string(rune('A'+i)))
		reset(upstream)
	}
}

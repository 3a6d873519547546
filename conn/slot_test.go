package conn

import (
	"net"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// With max_connections open in a class, the next waits until one ends; the parent's
// bound holds for all children together, and a reload that raises it is felt at once.
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
	until(t, "it waits", func() bool { return len(r.Sessions()) == 3 })
	if n := r.shaper.Class("p").Sessions(); n != 2 || len(conns) != 0 {
		t.Errorf("%d are open", n)
	}
	first.Close()
	upstream.Close()
	expect(t, next(t, conns), "third")

	fourth := r.dial("l")
	send(t, fourth, "fourth")
	until(t, "it waits", func() bool { return len(r.Sessions()) == 3 })
	r.reload(text("3"))
	expect(t, next(t, conns), "fourth")
}

// A class that refuses closes what it has no room for; one that waits and leaves
// frees its place in line.
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

func TestResetWhileWaitingForASlot(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast)+class("one", fast, "max_connections = 1")+listener("m", "tcp", addr, "one"))
	first, second, third := r.dial("m"), r.dial("m"), r.dial("m")
	send(t, first, "1")
	send(t, third, "3")
	upstream := next(t, conns)
	until(t, "two wait", func() bool { return len(r.Sessions()) == 3 })
	reset(second)
	until(t, "one has left", func() bool { return r.service("m").stats.Ended[stats.Aborted].Load() == 1 })
	reset(first)
	expectReset(t, upstream)
	expect(t, next(t, conns), "3")
}

// A session of datagrams that has no slot does not wait for one.
func TestMaxConnectionsOfDatagrams(t *testing.T) {
	t.Parallel()
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "udp", policy.Echo, "c", `idle_timeout = "200ms"`))
	first, second := dialUDP(t, r.addr("l")), dialUDP(t, r.addr("l"))
	send(t, first, "x")
	expectDatagram(t, first, "x")
	send(t, second, "y")
	until(t, "it is dropped", func() bool { n, _ := r.dropped("c", stats.NoSession); return n == 1 })
	if got := &r.service("l").stats.Ended; got[stats.Overflow].Load() != 1 || got[stats.DialFailed].Load() != 0 {
		t.Error("it does not count as refused")
	}
	until(t, "the first has ended", func() bool { return len(r.Sessions()) == 0 })
	send(t, second, "z")
	expectDatagram(t, second, "z")
}

// A class that is gone takes its sessions' slots along to the one they get.
func TestSlotsOfARemovedClass(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "tcp", addr, "c"))
	r.open(conns)
	waits := r.dial("l")
	send(t, waits, "waits")
	until(t, "it waits", func() bool { return len(r.Sessions()) == 2 })
	r.reload(class("d", fast, "max_connections = 2") + listener("l", "tcp", addr, "d"))
	expect(t, next(t, conns), "waits")
	if n := r.shaper.Class("d").Sessions(); n != 2 {
		t.Errorf("%d are open in the new class", n)
	}
	third := r.dial("l")
	until(t, "the third waits", func() bool { return len(r.Sessions()) == 3 })
	time.Sleep(20 * time.Millisecond) // nothing may happen in this time
	if n := r.shaper.Class("d").Sessions(); n != 2 {
		t.Errorf("%d are open in the new class", n)
	}
	reset(third) // else it has a slot when the others end
	until(t, "it has left", func() bool { return len(r.Sessions()) == 2 })
}

// A client that has ended its connection without having sent anything waits no
// more after a time of grace; nor does one who would wait for longer than max_wait.
func TestLeavingTheQueueForASlot(t *testing.T) {
	t.Parallel()
	addr, conns := listen(t)
	for _, test := range []struct {
		key, sends string
		leaves     func(*net.TCPConn)
		result     stats.Result
	}{
		{"", "", func(c *net.TCPConn) { c.Close() }, stats.Aborted},
		{"", "", func(c *net.TCPConn) { c.CloseWrite() }, stats.Aborted},
		{"", "bytes", reset, stats.Aborted},
		{`max_wait = "50ms"`, "bytes", func(*net.TCPConn) {}, stats.Overflow},
	} {
		r := run(t, class("c", fast, "max_connections = 1", test.key)+listener("l", "tcp", addr, "c"))
		first, upstream := r.open(conns)
		second := r.dial("l")
		send(t, second, test.sends)
		until(t, "it waits", func() bool { return len(r.Sessions()) == 2 })
		test.leaves(second)
		r.awaitEndOf(test.result, 1)
		send(t, first, "still here")
		expect(t, upstream, "still here")
		first.Close()
		upstream.Close()
		r.open(conns)
	}
}

// What a client has sent waits with it, after its FIN too; and so does one that
// has a slot after all.
func TestWaitingForASlotWithAnEnd(t *testing.T) {
	t.Parallel()
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1", `max_wait = "1s"`)+listener("l", "tcp", addr, "c"))
	first, upstream := r.open(conns)
	second := r.dial("l")
	send(t, second, "request")
	second.CloseWrite()
	until(t, "it waits", func() bool { return len(r.Sessions()) == 2 })
	time.Sleep(leaveGrace + 100*time.Millisecond) // nothing may happen in this time
	first.Close()
	upstream.Close()
	upstream = next(t, conns)
	expect(t, upstream, "request")
	time.Sleep(time.Second) // max_wait is over, and nothing may happen
	send(t, upstream, "answer")
	expect(t, second, "answer")
}

// Those who wait when the server stops are not let in by the end of the others.
func TestShutdownWithWaiters(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "tcp", addr, "c"))
	r.open(conns)
	const n = 100
	for range n {
		send(t, r.dial("l"), "x")
	}
	until(t, "all wait", func() bool { return len(r.Sessions()) == n+1 })
	if reset := r.Shutdown(expired); reset != n+1 {
		t.Errorf("%d are reset", reset)
	}
	if len(conns) != 0 {
		t.Errorf("%d reached the upstream after all", len(conns))
	}
}

// Sessions that a reload moves wait in the order in which they came.
func TestReloadKeepsTheOrder(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "tcp", addr, "c"))
	client, upstream := r.open(conns)
	const n = 30
	for i := range n {
		c := r.dial("l")
		send(t, c, string(rune('A'+i)))
		until(t, "it waits", func() bool { return len(r.Sessions()) == i+2 })
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

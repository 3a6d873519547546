package conn

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/upstream"
)

// An upstream that is one of our own listeners is refused, however it is spelled.
func TestLoopIsRefused(t *testing.T) {
	for _, c := range []struct{ listen, upstream string }{
		{"127.0.0.1", "127.0.0.1"},
		{"127.0.0.1", "localhost"},
		{"127.0.0.1", "0.0.0.0"},
		{"127.0.0.1", "[::ffff:127.0.0.1]"},
		{"127.0.0.2", "127.0.0.2"},
		{"0.0.0.0", "127.0.0.1"},
		{"0.0.0.0", "127.8.7.6"},
		{"0.0.0.0", "0.0.0.0"},
		{"0.0.0.0", "[::ffff:127.0.0.1]"},
		{"[::1]", "[::1]"},
		{"[::1]", "[::]"},
		{"[::]", "[::1]"},
		{"[::]", "[::]"},
		{"", "127.0.0.1"},
		{"", "[::ffff:127.0.0.3]"},
		{"", "[::]"},
		{"", "localhost"},
	} {
		t.Run(c.listen+" to "+c.upstream, func(t *testing.T) {
			r := bare(t)
			port := freePort(t)
			p := parse(t, class("c", fast)+listener("l", "tcp", "127.0.0.1:9", "c", fmt.Sprintf("listen = \"%s:%s\"", c.listen, port)))
			p.Listeners[0].Upstream = []string{c.upstream + ":" + port} // what Parse refuses must fail here, too
			r.adopt(p)
			r.expectRefused("l")
			trial.Await(t, "the dial has failed", func() bool { return r.service("l").stats.Ended[stats.DialFailed].Load() > 0 })
			if !strings.Contains(r.log.String(), upstream.ErrLoop.Error()) {
				t.Errorf("the log does not say so: %s", r.log)
			}
		})
	}
}

// freePort returns a port that is free on all addresses.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestIsOwn(t *testing.T) {
	r := run(t, class("c", fast)+
		listener("t", "tcp", policy.Echo, "c", `listen = "127.0.0.1:0"`)+
		listener("u", "udp", policy.Echo, "c", `listen = "0.0.0.0:0"`)+
		listener("six", "tcp", policy.Echo, "c", `listen = "[::]:0"`))
	six := netip.MustParseAddrPort(r.addr("six")).Port()
	tcp, udp := netip.MustParseAddrPort(r.addr("t")).Port(), netip.MustParseAddrPort(r.addr("u")).Port()
	for _, c := range []struct {
		network, host string
		port          uint16
		loop          bool
	}{
		{"tcp", "127.0.0.1", tcp, true},
		{"tcp", "127.0.0.2", tcp, false},
		{"tcp", "[::1]", tcp, false},
		{"tcp", "192.0.2.1", tcp, false},
		{"tcp", "127.0.0.1", tcp + 1, false},
		{"udp", "127.0.0.1", tcp, false},
		{"udp", "127.0.0.2", udp, true},
		{"udp", "0.0.0.0", udp, true},
		{"udp", "[::ffff:127.0.0.1]", udp, true},
		{"udp", "[::1]", udp, false}, // the wildcard of one family does not accept the other
		{"tcp", "[::1]", six, true},
		{"tcp", "127.0.0.1", six, false},
		{"tcp", "0.0.0.0", six, false},
		{"udp", "192.0.2.1", udp, false},
	} {
		to := upstream.Unmapped(netip.MustParseAddrPort(fmt.Sprintf("%s:%d", c.host, c.port)))
		if own := r.isOwn(c.network, to); own != c.loop {
			t.Errorf("%s %s:%d is our own: %v, want %v", c.network, c.host, c.port, own, c.loop)
		}
	}
}

// A reload changes which addresses are our own, and when the server stops, none is.
func TestIsOwnFollowsReloads(t *testing.T) {
	r := run(t, class("c", fast)+
		listener("stays", "tcp", policy.Echo, "c", `listen = "127.0.0.1:0"`)+
		listener("goes", "udp", policy.Echo, "c", `listen = "127.0.0.1:0"`))
	stays, goes := netip.MustParseAddrPort(r.addr("stays")), netip.MustParseAddrPort(r.addr("goes"))
	r.reload(class("c", fast) +
		listener("stays", "tcp", policy.Echo, "c", `listen = "127.0.0.1:0"`) +
		listener("comes", "tcp", policy.Echo, "c", `listen = "127.0.0.2:0"`))
	comes := netip.MustParseAddrPort(r.addr("comes"))
	if !r.isOwn("tcp", stays) || !r.isOwn("tcp", comes) || r.isOwn("udp", goes) {
		t.Error("after a reload, the addresses are not those of the sockets")
	}
	r.Shutdown(expired)
	if r.isOwn("tcp", stays) || r.isOwn("tcp", comes) {
		t.Error("an address is our own after the server has stopped")
	}
}

// BenchmarkIsOwn asks what each session asks, of a server with many listeners.
func BenchmarkIsOwn(b *testing.B) {
	text := class("c", fast)
	for n := range 300 {
		text += listener(fmt.Sprint("l", n), "tcp", policy.Echo, "c", `listen = "127.0.0.1:0"`)
	}
	r, to := run(b, text), netip.MustParseAddrPort("127.0.0.1:9")
	b.ReportAllocs()
	for b.Loop() {
		if r.isOwn("tcp", to) {
			b.Fatal("a port of others is our own")
		}
	}
}

// A socket that the kernel has connected with itself is no upstream.
func TestSelfConnect(t *testing.T) {
	self, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}}).Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	port := self.LocalAddr().(*net.UDPAddr).Port
	self.Close()
	at := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	c, err := net.DialUDP("udp", at, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := refuseSelf(c); err == nil || !strings.Contains(err.Error(), upstream.ErrLoop.Error()) {
		t.Errorf("refuseSelf: %v", err)
	}
	if _, err := c.Write(nil); err == nil {
		t.Error("the socket is open still")
	}
}

// Two shapers that forward to each other open a new session at each step of a datagram. That
// comes to an end.
func TestLoopOfTwoServers(t *testing.T) {
	a, b := bare(t), bare(t)
	portA, portB := freeUDP(t), freeUDP(t)
	a.reload(udp("127.0.0.1:"+portB, fast, "max_sessions = 50", `listen = "127.0.0.1:`+portA+`"`))
	b.reload(udp("127.0.0.1:"+portA, fast, "max_sessions = 50", `listen = "127.0.0.1:`+portB+`"`))
	send(t, dialUDP(t, "127.0.0.1:"+portA), "round")
	trial.Await(t, "it is dropped", func() bool {
		one, _ := a.dropped("c", stats.NoSession)
		two, _ := b.dropped("c", stats.NoSession)
		return one+two == 1
	})
	t.Cleanup(func() { a.Shutdown(expired) }) // before b counts its descriptors
	if n := len(a.Sessions()) + len(b.Sessions()); n != 100 {
		t.Errorf("%d sessions", n)
	}
}

func freeUDP(t testing.TB) string {
	t.Helper()
	c := bindUDP(t, ":0")
	defer c.Close()
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	return port
}

// An upstream that is our own listener gets nothing.
func TestLoopOfDatagramsIsRefused(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "127.3.2.1", "0.0.0.0", "[::ffff:127.0.0.1]"} {
		r := bare(t)
		port := freeUDP(t)
		p := parse(t, udp("127.0.0.1:9", fast, `listen = "0.0.0.0:`+port+`"`))
		p.Listeners[0].Upstream = []string{host + ":" + port}
		r.adopt(p)
		c := dialUDP(t, "127.0.0.1:"+port)
		var n atomic.Int64
		trial.Await(t, "the loop is refused", func() bool { // a name must be resolved first
			c.Write([]byte("x"))
			n.Add(1)
			items, _ := r.dropped("c", stats.NoSession)
			return items > 5 && r.service("l").terms.Load().leads.First().IsValid()
		})
		if host != "localhost" && !strings.Contains(r.log.String(), upstream.ErrLoop.Error()) { // before a name is known, the log says that
			t.Errorf("%s: the log does not say so: %s", host, r.log)
		}
		if len(r.Sessions()) > 0 {
			t.Errorf("%s: the sessions are %+v", host, r.Sessions())
		}
	}
}

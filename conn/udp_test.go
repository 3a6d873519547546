package conn

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// udp returns a policy of a UDP listener "l" through class "c".
func udp(upstream, rate string, more ...string) string {
	return class("c", rate) + listener("l", "udp", upstream, "c", more...)
}

// dialUDP returns a socket that is connected to a UDP address.
func dialUDP(t testing.TB, addr string) *net.UDPConn {
	t.Helper()
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*net.UDPConn)
}

// bindUDP returns a socket of an upstream.
func bindUDP(t testing.TB, addr string) *net.UDPConn {
	t.Helper()
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*net.UDPConn)
}

// receive reads the next datagram.
func receive(t testing.TB, c *net.UDPConn) (string, netip.AddrPort) {
	t.Helper()
	buf := make([]byte, 64<<10)
	n, from, err := c.ReadFromUDPAddrPort(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n]), from
}

func expectDatagram(t testing.TB, c *net.UDPConn, want string) (from netip.AddrPort) {
	t.Helper()
	got, from := receive(t, c)
	if got != want {
		t.Fatalf("got %d bytes, %.20q, want %d, %.20q", len(got), got, len(want), want)
	}
	return from
}

// Each client has its own session and its own socket to the upstream.
func TestSessionsOfClients(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	r := run(t, udp(upstream.LocalAddr().String(), fast))
	one, two := dialUDP(t, r.addr("l")), dialUDP(t, r.addr("l"))
	send(t, one, "one")
	fromOne := expectDatagram(t, upstream, "one")
	send(t, two, "two")
	fromTwo := expectDatagram(t, upstream, "two")
	send(t, one, "one again")
	if again := expectDatagram(t, upstream, "one again"); again != fromOne || fromOne == fromTwo {
		t.Errorf("they come from %v, %v and %v", fromOne, fromTwo, again)
	}
	upstream.WriteToUDPAddrPort([]byte("to two"), fromTwo)
	upstream.WriteToUDPAddrPort([]byte("to one"), fromOne)
	expectDatagram(t, one, "to one")
	expectDatagram(t, two, "to two")
	var all []Session
	trial.Await(t, "all is counted", func() bool {
		all = r.Sessions()
		return len(all) == 2 && all[0].Upward+all[1].Upward == 15 && all[0].Downward+all[1].Downward == 12
	})
	if all[0].Client != one.LocalAddr().String() || all[0].Upward != 12 || all[0].Downward != 6 || all[0].Class != "c" {
		t.Errorf("the sessions are %+v", all)
	}
}

// Empty datagrams and the largest ones pass in both directions, even if they are larger than
// what may leave at once.
func TestSizesOfDatagrams(t *testing.T) {
	for _, rate := range []string{fast, "1MB/s"} {
		upstream := bindUDP(t, "127.0.0.1:0")
		r := run(t, udp(upstream.LocalAddr().String(), rate, `return_class = "back"`)+class("back", rate))
		c := dialUDP(t, r.addr("l"))
		for _, size := range []int{0, 1, 65507, 0} {
			data := strings.Repeat("x", size)
			send(t, c, data)
			from := expectDatagram(t, upstream, data)
			upstream.WriteToUDPAddrPort([]byte(data), from)
			expectDatagram(t, c, data)
		}
		for _, dir := range []*stats.Volume{r.sent("c", stats.Upstream), r.sent("back", stats.Downstream)} {
			trial.Await(t, "all are counted", func() bool { return dir.Packets.Load() == 4 && dir.Bytes.Load() == 65508 })
		}
	}
}

// A datagram passes through a token bucket and a queue that are smaller than it.
func TestDatagramLargerThanTheBucket(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	r := run(t, class("c", "100kB/s", `algorithm = "token"`, `burst = "1000B"`, `queue = "500B"`)+
		listener("l", "udp", upstream.LocalAddr().String(), "c"))
	c := dialUDP(t, r.addr("l"))
	for range 2 {
		data := strings.Repeat("x", 10_000)
		send(t, c, data)
		expectDatagram(t, upstream, data)
	}
}

// At first nobody listens at the upstream, and the kernel reports that for each datagram. When
// somebody does, the same session serves it.
func TestUnreachableUpstream(t *testing.T) {
	reserved := bindUDP(t, "127.0.0.1:0")
	at := reserved.LocalAddr().String()
	reserved.Close()
	r := run(t, udp(at, fast))
	c := dialUDP(t, r.addr("l"))
	for i := range 20 {
		send(t, c, "lost")
		trial.Await(t, "it is sent", func() bool { return r.sent("c", stats.Upstream).Packets.Load() == uint64(i+1) })
	}
	id := r.Sessions()[0].ID
	upstream := bindUDP(t, at)
	send(t, c, "found")
	from := expectDatagram(t, upstream, "found")
	upstream.WriteToUDPAddrPort([]byte("answer"), from)
	expectDatagram(t, c, "answer")
	if all := r.Sessions(); len(all) != 1 || all[0].ID != id {
		t.Errorf("the sessions are %+v", all)
	}
}

// A flood of clients does not disturb the open sessions.
func TestFloodOfClients(t *testing.T) {
	r := run(t, udp(policy.Echo, fast, "max_sessions = 3"))
	var there []*net.UDPConn
	for i := range 3 {
		c := dialUDP(t, r.addr("l"))
		send(t, c, fmt.Sprint(i))
		expectDatagram(t, c, fmt.Sprint(i))
		there = append(there, c)
	}
	for range 50 {
		send(t, dialUDP(t, r.addr("l")), "flood")
	}
	trial.Await(t, "the others are counted", func() bool {
		items, n := r.dropped("c", stats.NoSession)
		return items == 50 && n == 250
	})
	for _, c := range there {
		send(t, c, "still here")
		expectDatagram(t, c, "still here")
	}
	if all := r.Sessions(); len(all) != 3 || cap(all) != 3 {
		t.Errorf("%d sessions, in memory for %d", len(all), cap(all))
	}
}

// UDP sessions leave descriptors to others.
func TestDescriptorsOfDatagramSessions(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	r := run(t, udp(upstream.LocalAddr().String(), fast))
	r.udpUpstreams.setMax(2)
	before := openDescriptors(t)
	for range 5 {
		send(t, dialUDP(t, r.addr("l")), "x")
	}
	trial.Await(t, "three have no session", func() bool { n, _ := r.dropped("c", stats.NoSession); return n == 3 })
	if !strings.Contains(r.log.String(), errDescriptors.Error()) {
		t.Errorf("the log does not say why: %s", r.log)
	}
	if n := openDescriptors(t) - before - 5; n > 2 {
		t.Errorf("%d descriptors are open for two sessions", n)
	}
	for _, one := range r.Sessions() {
		r.CloseSession(one.ID)
	}
	send(t, dialUDP(t, r.addr("l")), "again")
	trial.Await(t, "there is room again", func() bool { return len(r.Sessions()) == 1 })
}

// A session may be ended before it is registered: its socket knows it already. Nothing of it stays, and
// whoever begins it undoes nothing once more.
func TestSessionEndsBeforeItIsRegistered(t *testing.T) {
	for _, stopping := range []bool{false, true} {
		r := run(t, udp(policy.Echo, fast))
		c := dialUDP(t, r.addr("l"))
		send(t, c, "x")
		expectDatagram(t, c, "x")
		one := r.sessions.all()[0].(*udpSession)
		one.abort(stats.OK)
		r.sessions.mu.Lock()
		r.sessions.closed = stopping
		r.sessions.mu.Unlock()
		if !one.socket.enter(one) {
			t.Error("it would be undone twice")
		}
		one.socket.leave(one) // as abort does
		if all := r.Sessions(); len(all) != 0 {
			t.Fatalf("sessions that have ended stay: %+v", all)
		}
	}
}

func TestDatagramSessionTimesOut(t *testing.T) {
	t.Parallel()
	upstream := bindUDP(t, "127.0.0.1:0")
	r := run(t, udp(upstream.LocalAddr().String(), fast, `idle_timeout = "100ms"`))
	send(t, dialUDP(t, r.addr("l")), "x")
	expectDatagram(t, upstream, "x")
	r.awaitEnd(stats.OK, 1)
}

// A removed socket answers its sessions until they are idle.
func TestRemovedSocketOfDatagrams(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	keep := listener("keep", "tcp", policy.Echo, "c")
	r := run(t, udp(upstream.LocalAddr().String(), fast, `idle_timeout = "1s"`)+keep)
	sv := r.service("l")
	c := dialUDP(t, r.addr("l"))
	send(t, c, "x")
	from := expectDatagram(t, upstream, "x")
	r.reload(class("c", fast) + keep)
	upstream.WriteToUDPAddrPort([]byte("late"), from)
	expectDatagram(t, c, "late")
	trial.Await(t, "the session has ended", func() bool { return sv.stats.Ended[stats.OK].Load() == 1 })
	trial.Await(t, "the socket is forgotten", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.closing) == 0
	})
}

// If a socket is removed and put back while it has sessions, it is the same socket.
func TestRemovedSocketOfDatagramsComesBack(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	port := freeUDP(t)
	keep := listener("keep", "tcp", policy.Echo, "c")
	with := udp(upstream.LocalAddr().String(), fast, `idle_timeout = "1s"`, `listen = "127.0.0.1:`+port+`"`) + keep
	without := class("c", fast) + keep
	r := run(t, with)
	c := dialUDP(t, "127.0.0.1:"+port)
	send(t, c, "0")
	from := expectDatagram(t, upstream, "0")
	one := r.sessions.all()[0].(*udpSession)
	one.up.pending.Add(1) // something waits: else the session may end while the socket closes, however soon that comes back
	descriptors := openDescriptors(t)
	for range 20 {
		r.reload(without)
		change, err := r.prepare(with)
		if err != nil {
			t.Fatal(err)
		}
		change.Abort() // and the socket closes as before
		dropped, _ := r.dropped("c", stats.NoSession)
		send(t, c, "of any age")
		r.reload(with)
		if n, _ := r.dropped("c", stats.NoSession); n != dropped+1 {
			t.Errorf("%d datagrams that came meanwhile are dropped, want %d", n, dropped+1)
		}
		send(t, c, "again")
		if again := expectDatagram(t, upstream, "again"); again != from {
			t.Fatalf("the session comes from %v, and before from %v", again, from)
		}
	}
	if n := openDescriptors(t); n != descriptors {
		t.Errorf("%d descriptors after, %d before", n, descriptors)
	}
	one.up.pending.Add(-1)
	r.reload(without)
	trial.Await(t, "the session has ended", func() bool { return len(r.Sessions()) == 0 })
	bindUDP(t, "127.0.0.1:"+port) // the address is free
	r.reload(without)
	if n := len(r.closing); n != 0 {
		t.Errorf("%d sockets are kept", n)
	}
}

// A datagram whose source is one of our own listeners gets no answer. It is forged, and that
// listener would answer the answer, and so on forever.
func TestForgedSourceOfDatagram(t *testing.T) {
	r := run(t, udp(policy.Echo, fast)+listener("m", "udp", policy.Echo, "c", `listen = "0.0.0.0:0"`))
	l := netip.MustParseAddrPort(r.addr("l"))
	_, port, _ := net.SplitHostPort(r.addr("m"))
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	sources := []string{l.Addr().String() + fmt.Sprintf(":%d", l.Port()), "127.0.0.9:" + port}
	for _, one := range own {
		if ip := one.(*net.IPNet).IP; ip.To4() != nil {
			sources = append(sources, ip.String()+":"+port)
		}
	}
	for _, source := range sources {
		forge(t, netip.MustParseAddrPort(source), l, "ping")
	}
	trial.Await(t, "they are dropped", func() bool {
		n, _ := r.dropped("c", stats.NoSession)
		return n == uint64(len(sources))
	})
	if n := len(r.Sessions()); n != 0 {
		t.Errorf("%d sessions", n)
	}
}

// forge sends a datagram with a forged source address.
func forge(t testing.TB, from, to netip.AddrPort, payload string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		trial.SkipUnlessCI(t, "a raw socket needs CAP_NET_RAW: %v", err)
	}
	defer unix.Close(fd)
	source, dest := from.Addr().As4(), to.Addr().As4()
	packet := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0} // the kernel fills in lengths and the checksum
	packet = append(append(packet, source[:]...), dest[:]...)
	for _, n := range []int{int(from.Port()), int(to.Port()), 8 + len(payload), 0} {
		packet = binary.BigEndian.AppendUint16(packet, uint16(n))
	}
	if err := unix.Sendto(fd, append(packet, payload...), 0, &unix.SockaddrInet4{Addr: dest}); err != nil {
		t.Fatal(err)
	}
}

// A broadcast request gets its answer from our address in that network.
func TestReplyToBroadcast(t *testing.T) {
	for _, host := range []string{"0.0.0.0", ""} {
		port := freeUDP(t)
		r := bare(t)
		r.reload(udp(policy.Echo, fast, `listen = "`+host+":"+port+`"`))
		c := bindUDP(t, "127.0.0.1:0")
		to := netip.MustParseAddrPort("127.255.255.255:" + port)
		if _, err := c.WriteToUDPAddrPort([]byte("who is there"), to); err != nil {
			t.Fatal(err)
		}
		if from := expectDatagram(t, c, "who is there"); from.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
			t.Errorf("on %q: %v answers", host, from)
		}
	}
}

// Rules see the upstream that a session has, even if the listener has another one now.
func TestDestinationOfDatagramSession(t *testing.T) {
	a, b := bindUDP(t, "127.0.0.1:0").LocalAddr().String(), bindUDP(t, "127.0.0.2:0").LocalAddr().String()
	text := func(upstream, classes string) string {
		return classes + class("a", fast) + class("b", fast) + listener("l", "udp", upstream, "a") +
			"[[rule]]\ndestination = \"127.0.0.2\"\nclass = \"b\"\n"
	}
	r := run(t, class("gone", fast)+listener("l", "udp", a, "gone"))
	send(t, dialUDP(t, r.addr("l")), "x")
	trial.Await(t, "there is a session", func() bool { return len(r.Sessions()) == 1 })
	r.reload(text(b, ""))
	if got := r.Sessions()[0].Class; got != "a" {
		t.Errorf("the session is in %q, want a", got)
	}
}

// A panic in a UDP session ends only that session, in the goroutine that reads and in the
// pacer's.
func TestPanicInDatagramSession(t *testing.T) {
	t.Parallel()
	r := run(t, udp(policy.Discard, "20 packets/s"))
	other := dialUDP(t, r.addr("l"))
	send(t, other, "x")
	trial.Await(t, "there is a session", func() bool { return len(r.Sessions()) == 1 })
	sv, socket := r.service("l"), r.sessions.all()[0].(*udpSession).socket
	for i, gap := range []time.Duration{60 * time.Millisecond, 0} {
		time.Sleep(gap) // after that, a datagram leaves at once
		one := &udpSession{socket: socket, service: sv, conf: &sv.terms.Load().Listener}
		one.key.client = netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(i+1))
		if !sv.gate.tryEnter() || one.begin(sv.terms.Load().leads) != nil {
			t.Fatal("no session")
		}
		sv.stats.Open.Add(1)
		one.up.Raw = brokenRaw{}
		in := oneDatagram(t)
		one.offer(&one.up, in.Batch, 0, 1)
		in.Release()
		r.awaitEndOf(stats.Panicked, uint64(i+1))
	}
	sent := r.sent("c", stats.Upstream).Packets.Load()
	send(t, other, "x")
	trial.Await(t, "the other goes on", func() bool { return r.sent("c", stats.Upstream).Packets.Load() > sent })
	if n := strings.Count(r.log.String(), "in sendmmsg"); n != 2 {
		t.Errorf("%d panics are logged, want 2", n)
	}
}

// oneDatagram returns a batch of one.
func oneDatagram(t testing.TB) *sock.Reader {
	t.Helper()
	c := bindUDP(t, "127.0.0.1:0")
	send(t, dialUDP(t, c.LocalAddr().String()), "x")
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	in := &sock.Reader{}
	if n, err := in.Read(raw); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	return in
}

type brokenRaw struct{ syscall.RawConn }

func (brokenRaw) Write(func(uintptr) bool) error { panic("in sendmmsg") }

// On wildcard sockets, the address that was asked answers.
func TestReplyFromTheAddressAsked(t *testing.T) {
	for _, c := range []struct {
		listen string
		asked  []string
	}{
		{"0.0.0.0", []string{"127.0.0.1", "127.0.0.2"}},
		{"[::]", []string{"[::1]"}},
		{"", []string{"[::1]", "127.0.0.1", "127.0.0.2"}},
	} {
		upstream := bindUDP(t, "127.0.0.1:0")
		port := freeUDP(t)
		r := bare(t)
		r.reload(udp(upstream.LocalAddr().String(), fast, fmt.Sprintf("listen = \"%s:%s\"", c.listen, port)))
		// A socket that is not connected accepts an answer from anywhere.
		for _, six := range []bool{false, true} {
			local := "127.0.0.1:0"
			if six {
				local = "[::1]:0"
			}
			socket := bindUDP(t, local)
			var seen []netip.AddrPort
			for _, host := range c.asked {
				to := netip.MustParseAddrPort(host + ":" + port)
				if to.Addr().Is6() != six {
					continue
				}
				if _, err := socket.WriteToUDPAddrPort([]byte(host), to); err != nil {
					t.Fatal(err)
				}
				session := expectDatagram(t, upstream, host)
				upstream.WriteToUDPAddrPort([]byte("answer"), session)
				if from := expectDatagram(t, socket, "answer"); from != to {
					t.Errorf("on %q: asked %v, and %v answers", c.listen, to, from)
				}
				if slices.Contains(seen, session) {
					t.Errorf("on %q: %v shares a session", c.listen, to)
				}
				seen = append(seen, session)
			}
		}
	}
}

func TestEchoOfDatagrams(t *testing.T) {
	r := run(t, udp(policy.Echo, fast, `return_class = "back"`)+class("back", fast))
	c := dialUDP(t, r.addr("l"))
	for i := range 100 {
		send(t, c, fmt.Sprint(i))
	}
	for i := range 100 {
		expectDatagram(t, c, fmt.Sprint(i))
	}
	trial.Await(t, "all are counted, both ways", func() bool {
		return r.sent("c", stats.Upstream).Packets.Load() == 100 && r.sent("back", stats.Downstream).Packets.Load() == 100
	})
}

// When nobody listens at an address, which ICMP says, one client finds out, and those that come after it get another
// address.
func TestRefusedDatagramsEject(t *testing.T) {
	reserved, upstream := bindUDP(t, "127.0.0.1:0"), bindUDP(t, "127.0.0.1:0")
	refuses := reserved.LocalAddr().String()
	reserved.Close()
	r := run(t, class("c", fast)+fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = \"udp\"\nclass = \"c\"\nbalance = \"round-robin\"\nupstream = [%q, %q]\n",
		refuses, upstream.LocalAddr()))
	send(t, dialUDP(t, r.addr("l")), "lost")
	trial.Await(t, "the address that refuses is ejected", func() bool { return r.Upstreams()[0].State == "ejected" })
	for _, text := range []string{"one", "two", "three", "four"} {
		send(t, dialUDP(t, r.addr("l")), text)
		expectDatagram(t, upstream, text)
	}
	if one := r.Upstreams()[1]; one.State != "up" || one.Failures != 0 {
		t.Errorf("the other address: %+v", one)
	}
	for name, want := range map[string]uint64{refuses: 1, upstream.LocalAddr().String(): 0} {
		if n := r.Listeners()[0].UpstreamFailures[name][stats.NotServed]; n != want {
			t.Errorf("%d failures of %s are counted, want %d", n, name, want)
		}
	}
}

// An ICMP error of an earlier datagram does not keep the next one from leaving.
func TestSendAfterUnreachable(t *testing.T) {
	reserved := bindUDP(t, "127.0.0.1:0")
	at := reserved.LocalAddr().String()
	reserved.Close()
	c := dialUDP(t, at)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, "lost")
	trial.Await(t, "the kernel holds an error", func() (held bool) {
		raw.Control(func(fd uintptr) {
			poll := []unix.PollFd{{Fd: int32(fd)}}
			n, _ := unix.Poll(poll, 0)
			held = n == 1 && poll[0].Revents&unix.POLLERR != 0
		})
		return held
	})
	upstream := bindUDP(t, at)
	w := &udpDirection{Route: sock.Route{Raw: raw}, session: &udpSession{service: &service{}}}
	out := getOutgoing()
	w.offer(sock.Train{Payload: []byte("found")}, out)
	w.send(out)
	out.release()
	expectDatagram(t, upstream, "found")
}

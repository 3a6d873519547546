package conn

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/entry"
	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// relayed is a SOCKS client that has a relay for its datagrams.
type relayed struct {
	control tcpConn
	udp     *net.UDPConn
	relay   netip.AddrPort
}

// ask asks listener "l" for a relay, and returns the reply. The client logs in if it has a user, whose
// password is "x".
func (r *rig) ask(user, from string) (control tcpConn, reply []byte) {
	r.t.Helper()
	control = r.dial("l")
	return control, r.askBy(control, user, from)
}

// askBy is ask by a connection.
func (r *rig) askBy(control tcpConn, user, from string) (reply []byte) {
	r.t.Helper()
	at := netip.MustParseAddrPort(from)
	hello, greeted := "\x05\x01\x00", "\x05\x00"
	if user != "" {
		hello, greeted = "\x05\x01\x02\x01"+string([]byte{byte(len(user))})+user+"\x01x", "\x05\x02\x01\x00"
	}
	send(r.t, control, hello+"\x05\x03\x00\x01"+string(binary.BigEndian.AppendUint16(at.Addr().AsSlice(), at.Port())))
	expect(r.t, control, greeted)
	reply = make([]byte, 10)
	if _, err := io.ReadFull(control, reply); err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// associate returns a client that has a relay.
func (r *rig) associate(user string) *relayed {
	r.t.Helper()
	return r.associateBy(r.dial("l"), user)
}

// associateBy is associate by a connection.
func (r *rig) associateBy(control tcpConn, user string) *relayed {
	r.t.Helper()
	reply := r.askBy(control, user, "0.0.0.0:0")
	if string(reply[:4]) != "\x05\x00\x00\x01" {
		r.t.Fatalf("the reply is %q", reply)
	}
	addr, _ := netip.AddrFromSlice(reply[4:8])
	return &relayed{control: control, udp: bindUDP(r.t, "127.0.0.1:0"), relay: netip.AddrPortFrom(addr, binary.BigEndian.Uint16(reply[8:]))}
}

// header returns the header of a datagram to a host: an address, or a name.
func header(host string, port uint16) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return string(entry.AppendDatagram(nil, netip.AddrPortFrom(addr, port)))
	}
	return "\x00\x00\x00\x03" + string([]byte{byte(len(host))}) + host + string(binary.BigEndian.AppendUint16(nil, port))
}

func (c *relayed) send(t testing.TB, data string) {
	t.Helper()
	if _, err := c.udp.WriteToUDPAddrPort([]byte(data), c.relay); err != nil {
		t.Fatal(err)
	}
}

// stray waits until n datagrams of listener "l" have strayed for a reason.
func (r *rig) stray(reason string, n uint64) {
	r.t.Helper()
	trial.Await(r.t, fmt.Sprintf("%d datagrams stray: %s", n, reason), func() bool { return r.service("l").stats.Stray.Read()[reason] == n })
}

// unreached waits until n destinations of listener "l" could not be reached.
func (r *rig) unreached(n uint64) {
	r.t.Helper()
	trial.Await(r.t, fmt.Sprintf("%d destinations are not reached", n), func() bool { return r.service("l").stats.Ended[stats.DialFailed].Load() == n })
}

// A SOCKS client exchanges datagrams with several servers by one relay. Each destination is a session
// with its own class. All of it ends with the connection of the client.
func TestAssociation(t *testing.T) {
	one, two := bindUDP(t, "127.0.0.1:0"), bindUDP(t, "127.0.0.2:0")
	r := run(t, entryTo("socks5", `allow = "127.0.0.0/8"`)+class("other", fast)+"[[rule]]\ndestination = \"127.0.0.2\"\nclass = \"other\"\n")
	before := openDescriptors(t)
	c := r.associate("")
	for _, server := range []*net.UDPConn{one, two} {
		at := server.LocalAddr().(*net.UDPAddr).AddrPort()
		head := header(at.Addr().String(), at.Port())
		for _, said := range []string{"question", "", strings.Repeat("x", 60_000)} {
			c.send(t, head+said)
			from := expectDatagram(t, server, said)
			server.WriteToUDPAddrPort([]byte("answer"+said), from)
			if got, by := receive(t, c.udp); got != head+"answer"+said || by != c.relay {
				t.Errorf("%.20q of %d bytes comes from %v", got, len(got), by)
			}
		}
	}
	all := r.Sessions()
	if len(all) != 3 || all[1].Class != "c" || all[2].Class != "other" || all[2].Protocol != "udp" || all[2].Destination != two.LocalAddr().String() || all[1].Upward != 60_008 {
		t.Errorf("the sessions are %+v", all)
	}
	c.control.CloseWrite()
	expectEOF(t, c.control)
	trial.Await(t, "all sessions have ended", func() bool { return len(r.Sessions()) == 0 })
	c.control.Close()
	trial.Await(t, "no descriptor is left", func() bool { return openDescriptors(t) == before+1 }) // that of the client
	r.service("l").relays.mu.Lock()
	defer r.service("l").relays.mu.Unlock()
	if n := len(r.service("l").relays.counts); n > 0 {
		t.Errorf("%d clients are still counted", n)
	}
}

// A relay with destinations is not idle, however often the janitor has looked before there was a relay.
func TestRelayInUseIsNotIdle(t *testing.T) {
	server := bindUDP(t, "127.0.0.1:0")
	r := run(t, entryTo("socks5", `allow = "127.0.0.0/8"`))
	control := r.dial("l")
	trial.Await(t, "the session has begun", func() bool { return len(r.Sessions()) == 1 })
	one := r.sessions.all()[0].(*tcpSession)
	one.tend(time.Now())
	c := r.associateBy(control, "")
	c.send(t, header("127.0.0.1", server.LocalAddr().(*net.UDPAddr).AddrPort().Port())+"x")
	expectDatagram(t, server, "x")
	one.tend(time.Now().Add(2 * time.Duration(one.conf.IdleTimeout)))
	if n := len(r.Sessions()); n != 2 {
		t.Errorf("%d sessions are open", n)
	}
}

// Only the client may use its relay, and only for what is a datagram of SOCKS to an allowed address.
func TestStrayDatagrams(t *testing.T) {
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	r := run(t, entryTo("socks5", fmt.Sprintf(`allow = ["%v", "*", "0.0.0.0/0", "::/0"]`, at), `deny = "bad.example"`))
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("169.254.169.254:80")}, nil
	})
	c := r.associate("")
	head := header("127.0.0.1", at.Port())
	other := bindUDP(t, "127.0.0.2:0") // before the first datagram, only the address tells
	other.WriteToUDPAddrPort([]byte(head+"spoofed"), c.relay)
	r.stray(stats.StraySource, 1)
	c.send(t, head+"first")
	expectDatagram(t, server, "first")
	neighbour := bindUDP(t, "127.0.0.1:0") // from now on, the port too
	neighbour.WriteToUDPAddrPort([]byte(head+"spoofed"), c.relay)
	r.stray(stats.StraySource, 2)
	for i, bad := range []string{"", "\x00", "\x00\x00\x00", "\x00\x00\x00\x01\x7f", "\x00\x00\x00\x02" + head[4:], "\x00\x00\x00\xff", "\x00\x01" + head[2:], "\x00\x00\x00\x03\xffshort", "\x00\x00\x00\x03\x00\x00\x35",
		header("0x7f.1", 53), header("2130706433", 53), header(strings.Repeat("a", 254), 53), header("127.0.0.1", 0)} {
		c.send(t, bad)
		r.stray(stats.StrayHeader, uint64(i+1))
	}
	c.send(t, "\x00\x00\x01"+head[3:]+"fragment")
	c.send(t, "\x00\x00\x80"+head[3:]+"fragment")
	r.stray(stats.StrayFragment, 2)
	for i, host := range []string{"127.0.0.2", "127.255.255.254", "10.0.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1",
		"fc00::1", "bad.example", "test"} { // the last one by what its name means
		port := uint16(9)
		if host == "test" {
			port = 1
		}
		c.send(t, header(host, port)+"x")
		r.stray(stats.StrayDenied, uint64(i+1))
	}
	c.send(t, head+"last")
	expectDatagram(t, server, "last")
	if all := r.Sessions(); len(all) != 2 {
		t.Errorf("the sessions are %+v", all)
	}
}

// A datagram to the broadcast address of a network would reach machines that deny names. So entries
// send none, whatever they allow.
func TestEntriesDoNotBroadcast(t *testing.T) {
	all := bindUDP(t, "0.0.0.0:0")
	port := all.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	r := run(t, entryTo("socks5", `allow = "127.0.0.0/8"`, `deny = "127.0.0.1"`))
	c := r.associate("")
	c.send(t, header("127.255.255.255", port)+"to all")
	r.unreached(1)
	c.send(t, header("127.0.0.2", port)+"to one")
	expectDatagram(t, all, "to one")
}

// After a reload that takes its kind of relay away, a client reaches no new destination, above all not
// the upstream of what the listener is now. What it has begun goes on.
func TestRelayOutlivesItsListener(t *testing.T) {
	server, upstream := bindUDP(t, "127.0.0.1:0"), bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	for _, now := range []string{
		class("c", fast) + listener("l", "tcp", upstream.LocalAddr().String(), "c"),
		strings.Replace(entryTo("socks5", `allow = ["127.0.0.0/8", "*"]`, `inside = "smpp"`), fast, "30 messages/s", 1),
		entryTo("connect", `allow = ["127.0.0.0/8", "*"]`),
	} {
		r := run(t, entryTo("socks5", `allow = ["127.0.0.0/8", "*"]`))
		r.addresses("127.0.0.3:1")
		c := r.associate("")
		c.send(t, header("127.0.0.1", at.Port())+"before")
		expectDatagram(t, server, "before")
		r.reload(now)
		c.send(t, header("127.0.0.2", 9)+"new")
		r.stray(stats.StrayDenied, 1)
		c.send(t, header("test", 1)+"new")
		r.stray(stats.StrayDenied, 2)
		c.send(t, header("127.0.0.1", at.Port())+"after")
		expectDatagram(t, server, "after")
		if all := r.Sessions(); len(all) != 2 {
			t.Errorf("the sessions are %+v", all)
		}
	}
}

// After a reload that removes the listener, or the user of a client, or changes its password, that
// client reaches no new destination by its relay. What it has begun goes on.
func TestRelayOfARemovedUser(t *testing.T) {
	hash, other := hashOf(t, "x"), hashOf(t, "y")
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	dir := trial.Files(t, map[string]string{"users": "ann:" + hash, "others": "bob:" + hash, "changed": "ann:" + other})
	text := entryTo("socks5", `allow = ["127.0.0.0/8", "*"]`, fmt.Sprintf("users = %q", filepath.Join(dir, "users")))
	for what, now := range map[string]string{
		"the listener": class("c", fast) + listener("other", "tcp", policy.Echo, "c"),
		"the user":     strings.ReplaceAll(text, filepath.Join(dir, "users"), filepath.Join(dir, "others")),
		"the password": strings.ReplaceAll(text, filepath.Join(dir, "users"), filepath.Join(dir, "changed")),
	} {
		t.Run(what, func(t *testing.T) {
			r := run(t, text)
			r.addresses("127.0.0.3:1")
			sv := r.service("l")
			c := r.associate("ann")
			c.send(t, header("127.0.0.1", at.Port())+"before")
			expectDatagram(t, server, "before")
			r.reload(now)
			for i, to := range []string{header("127.0.0.2", 9), header("test", 1)} {
				c.send(t, to+"new")
				trial.Await(t, "it is counted", func() bool { return sv.stats.Stray.Read()[stats.StrayDenied] == uint64(i+1) })
			}
			c.send(t, header("127.0.0.1", at.Port())+"after")
			expectDatagram(t, server, "after")
			if all := r.Sessions(); len(all) != 2 {
				t.Errorf("the sessions are %+v", all)
			}
			r.reload(text)
			c.send(t, header("127.0.0.1", at.Port())+"again")
			expectDatagram(t, server, "again")
			c.send(t, header("127.0.0.2", at.Port())+"new")
			trial.Await(t, "the destination is allowed again", func() bool { return len(r.Sessions()) == 3 })
		})
	}
}

// A name that is looked up holds up nobody else. The first datagrams to it wait, and follow; too many
// are dropped. If the client leaves meanwhile, nothing stays.
func TestNamesOfDatagrams(t *testing.T) {
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprint(leaves), func(t *testing.T) {
			r := run(t, entryTo("socks5", `allow = ["127.0.0.0/8", "*"]`))
			answer := make(chan struct{})
			r.meaning(func(ctx context.Context) ([]netip.AddrPort, error) {
				select {
				case <-answer:
					return []netip.AddrPort{at}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			before := openDescriptors(t)
			c := r.associate("")
			for i := range maxHeld + 3 {
				c.send(t, header("test", 1)+fmt.Sprint("held ", i))
			}
			c.send(t, header("127.0.0.1", at.Port())+"known")
			expectDatagram(t, server, "known")
			r.stray(stats.StrayName, 3)
			if leaves {
				reset(c.control)
				trial.Await(t, "all sessions have ended", func() bool { return len(r.Sessions()) == 0 })
				trial.Await(t, "no descriptor is left", func() bool { return openDescriptors(t) == before+1 })
				return
			}
			close(answer)
			for i := range maxHeld {
				expectDatagram(t, server, fmt.Sprint("held ", i))
			}
			c.send(t, header("test", 1)+"more")
			from := expectDatagram(t, server, "more")
			server.WriteToUDPAddrPort([]byte("answer"), from)
			if got, _ := receive(t, c.udp); got != header("127.0.0.1", at.Port())+"answer" {
				t.Errorf("the client gets %q", got)
			}
			if all := r.Sessions(); len(all) != 3 || all[2].Upstream != "test:1" || all[2].Destination != at.String() {
				t.Errorf("the sessions are %+v", all)
			}
		})
	}
}

// lateReader is the relay of a client whose second datagram comes to admit only when the test lets it go on.
type lateReader struct {
	*association
	second chan udpKey   // gets the key of the second datagram
	goOn   chan struct{} // closed: that datagram goes on
	came   int           // datagrams to admit
}

func (l *lateReader) admit(key udpKey, client sock.Peer, t sock.Train) bool {
	if l.came++; l.came == 2 {
		l.second <- key
		<-l.goOn
	}
	return l.association.admit(key, client, t)
}

// If a lookup begins the session of a destination while the next datagram to it is read, that goes by the
// same session.
func TestOneSessionForADestination(t *testing.T) {
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	r := run(t, entryTo("socks5", `allow = ["127.0.0.0/8", "*"]`))
	answer := make(chan struct{})
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		<-answer
		return []netip.AddrPort{at}, nil
	})
	c := r.associate("")
	one := r.one()
	var who policy.Conn
	one.do(func(*tcpSession) { who = one.describe() })
	a, err := associate(one, who, netip.MustParseAddr("127.0.0.1"), netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close(stats.OK)
	late := &lateReader{association: a, second: make(chan udpKey, 1), goOn: make(chan struct{})}
	goOn := sync.OnceFunc(func() { close(late.goOn) })
	defer goOn()
	a.socket.addressing = late
	a.serve()
	c.relay = a.local()
	for _, said := range []string{"one", "two"} {
		c.send(t, header("test", 1)+said)
	}
	key := <-late.second
	close(answer)
	trial.Await(t, "the lookup that the first one has begun is over", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.waiting[key] == nil
	})
	goOn()
	for range 2 {
		receive(t, server)
	}
	if n := len(r.Sessions()); n != 2 {
		t.Errorf("there are %d sessions, want that of the client and one for its destination", n)
	}
}

// A client has a bounded number of destinations and of relays, and those that it has go on.
func TestFloodsOfAnAssociation(t *testing.T) {
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	r := run(t, entryTo("socks5", `allow = "127.0.0.0/8"`))
	c := r.associate("")
	c.send(t, header("127.0.0.1", at.Port())+"first")
	expectDatagram(t, server, "first")
	for i := range maxDestinations + 9 {
		c.send(t, header(fmt.Sprintf("127.1.%d.%d", i/200, i%200+1), 9)+"x")
		if i < maxDestinations-1 { // one at a time: the buffer of the relay is finite
			trial.Await(t, "it has a session", func() bool { return len(r.Sessions()) == i+3 })
		} else {
			r.stray(stats.StrayMany, uint64(i-maxDestinations+2))
		}
	}
	c.send(t, header("127.0.0.1", at.Port())+"still here")
	expectDatagram(t, server, "still here")
	for range maxRelays - 1 {
		r.associate("")
	}
	if _, reply := r.ask("", "0.0.0.0:0"); reply[1] != 1 {
		t.Errorf("one relay too many is answered by %q", reply)
	}
	reset(c.control)
	trial.Await(t, "there is room again", func() bool { return len(r.Sessions()) == maxRelays-1 })
	r.associate("")
}

// If the connection of the client ends while its datagrams wait for their class, they are dropped.
func TestAssociationEndsWithWaitingDatagrams(t *testing.T) {
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	r := run(t, strings.Replace(entryTo("socks5", `allow = "127.0.0.0/8"`), fast, "1kB/s", 1))
	c := r.associate("")
	for range 20 {
		c.send(t, header("127.0.0.1", at.Port())+strings.Repeat("x", 1000))
	}
	trial.Await(t, "they wait", func() bool { all := r.Sessions(); return len(all) == 2 && all[1].Waiting >= 18_000 })
	reset(c.control)
	trial.Await(t, "all sessions have ended", func() bool { return len(r.Sessions()) == 0 })
	items, _ := r.dropped("c", stats.Reset)
	if items < 15 || r.shaper.Class("c").Backlog().Items > 0 {
		t.Errorf("%d datagrams are dropped", items)
	}
}

// A relay that nothing would limit is refused, and so is a command that the listener does not have.
func TestRelaysNeedALimit(t *testing.T) {
	for text, want := range map[string]byte{
		entryTo("socks5", `allow = "*"`):                                                               0,
		strings.Replace(entryTo("socks5", `allow = "*"`), fast, "30 connections/s", 1):                 7,
		strings.Replace(entryTo("socks5", `allow = "*"`, `inside = "udp"`), fast, "30 packets/s", 1):   0,
		strings.Replace(entryTo("socks5", `allow = "*"`, `inside = "smpp"`), fast, "30 messages/s", 1): 7,
		entryTo("socks5", `allow = "*"`, `inside = "lines"`):                                           7,
	} {
		r := run(t, text)
		if _, reply := r.ask("", "127.0.0.1:4000"); reply[1] != want {
			t.Errorf("%s: a relay is answered by %d, want %d", text, reply[1], want)
		}
		if strings.Contains(text, `"udp"`) {
			c := r.dial("l")
			send(t, c, dialects["socks5"].ask("127.0.0.1", 9))
			expect(t, c, "\x05\x00\x05\x07")
		}
	}
}

// Who has logged in decides the class of datagrams, as of connections, and the name that was asked for.
func TestUsersOfDatagrams(t *testing.T) {
	hash := hashOf(t, "x")
	users := filepath.Join(trial.Files(t, map[string]string{"users": "ann:" + hash + "\nops-1:" + hash + "\n"}), "users")
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	r := run(t, entryTo("socks5", `allow = "127.0.0.1"`, `inside = "udp"`, fmt.Sprintf("users = %q", users))+
		class("ops", "1000 packets/s", `per = "user"`)+class("named", fast)+
		"[[rule]]\nuser = \"ops-*\"\nserver_name = \"test\"\nclass = \"named\"\n[[rule]]\nuser = \"ops-*\"\nclass = \"ops\"\n")
	r.meaning(func(context.Context) ([]netip.AddrPort, error) { return []netip.AddrPort{at}, nil })
	for _, want := range []struct {
		user, host string
		port       uint16
		class      string
	}{{"ann", "127.0.0.1", at.Port(), "c"}, {"ann", "test", 1, "c"}, {"ops-1", "127.0.0.1", at.Port(), "ops"}, {"ops-1", "test", 1, "named"}} {
		r.associate(want.user).send(t, header(want.host, want.port)+"x")
		expectDatagram(t, server, "x")
		all := r.Sessions()
		if last := all[len(all)-1]; last.Class != want.class || last.User != want.user {
			t.Errorf("the session of %s to %s is %+v", want.user, want.host, last)
		}
	}
}

// A client may ask for its relay over TLS. Its datagrams are as they are.
func TestAssociationOverTLS(t *testing.T) {
	cert := newAuthority(t)
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	r := run(t, entryTo("socks5", `allow = "127.0.0.1"`, cert.issue("localhost").terminating()))
	control := r.dialTLS("l", cert.trusting())
	send(t, control, "\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00")
	expect(t, control, "\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01")
	port := make([]byte, 2)
	if _, err := io.ReadFull(control, port); err != nil {
		t.Fatal(err)
	}
	c := &relayed{udp: bindUDP(t, "127.0.0.1:0"), relay: netip.AddrPortFrom(at.Addr(), binary.BigEndian.Uint16(port))}
	c.send(t, header("127.0.0.1", at.Port())+"question")
	expectDatagram(t, server, "question")
	control.Close()
	trial.Await(t, "all sessions have ended", func() bool { return len(r.Sessions()) == 0 })
}

// A client that says which port it sends from is bound to it from the start.
func TestPortOfAnAssociation(t *testing.T) {
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	r := run(t, entryTo("socks5", `allow = "127.0.0.0/8"`))
	mine, other := bindUDP(t, "127.0.0.1:0"), bindUDP(t, "127.0.0.1:0")
	_, reply := r.ask("", mine.LocalAddr().String())
	relay := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), binary.BigEndian.Uint16(reply[8:]))
	other.WriteToUDPAddrPort([]byte(header("127.0.0.1", at.Port())+"spoofed"), relay)
	r.stray(stats.StraySource, 1)
	mine.WriteToUDPAddrPort([]byte(header("127.0.0.1", at.Port())+"mine"), relay)
	expectDatagram(t, server, "mine")
}

// A relay takes nothing from shaper itself: otherwise a client of one relay could send by that of a
// client of this machine that has not sent yet, and would then have it.
func TestRelaysAreNoDestinations(t *testing.T) {
	server := bindUDP(t, "127.0.0.1:0")
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	r := run(t, entryTo("socks5", `allow = ["127.0.0.0/8", "0.0.0.0"]`))
	thief, owner := r.associate(""), r.associate("")
	for i, host := range []string{"127.0.0.1", "0.0.0.0"} {
		thief.send(t, header(host, owner.relay.Port())+header("127.0.0.1", at.Port())+"stolen")
		r.unreached(uint64(i + 1))
	}
	owner.send(t, header("127.0.0.1", at.Port())+"mine")
	expectDatagram(t, server, "mine")
	for range 100 { // until nobody else takes the port
		owner.control.Close()
		trial.Await(t, "the session has ended", func() bool { return len(r.Sessions()) == 1 })
		if taken, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(owner.relay)); err == nil {
			defer taken.Close()
			thief.send(t, header("127.0.0.1", owner.relay.Port())+"to another")
			expectDatagram(t, taken, "to another")
			return
		}
		owner = r.associate("")
	}
	t.Fatal("no port of a relay is free afterwards")
}

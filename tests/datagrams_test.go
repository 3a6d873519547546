package tests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaper/tests/trial"
)

// Programs in a network behind shaper ask a name server by UDP ASSOCIATE: drill, with the SOCKS client of
// Dante beneath it, and dig, by a forwarder. Their datagrams count in the class of the entry, and all
// sessions end with the connections of the clients.
func TestDNSThroughSOCKS(t *testing.T) {
	t.Parallel()
	drill, socksify, dig := tool(t, "drill", "ldnsutils"), tool(t, "socksify", "dante-client"), tool(t, "dig", "bind9-dnsutils")
	r := newRouter(t)
	r.client.run("ip link set lo up")
	r.program = startIn(r.in, t, raced(t), recipe(t, "DNS through SOCKS", `"127.0.0.1:0"`, `"192.0.2.1:1080"`, `"192.0.2.53:53"`, `"203.0.113.2:53"`))
	from := r.answer(t, "203.0.113.2:53", answerA)
	dir := trial.Files(t, map[string]string{"socks.conf": "route {\n from: 0.0.0.0/0 to: 203.0.113.0/24 via: 192.0.2.1 port = 1080\n proxyprotocol: socks_v5\n protocol: udp\n}\n"})
	_, port, _ := net.SplitHostPort(r.client.forwardBySOCKS(t, "192.0.2.1:1080", "203.0.113.2:53"))
	for _, args := range [][]string{
		{socksify, drill, "-u", "api.acme.example", "@203.0.113.2"},
		{dig, "+short", "+notcp", "+tries=1", "+time=20", "-p", port, "@127.0.0.1", "api.acme.example"},
	} {
		r.client.do(func() error {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(os.Environ(), "SOCKS_CONF="+filepath.Join(dir, "socks.conf"))
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "192.0.2.77") {
				return fmt.Errorf("%s: %w: %s", args, err, out)
			}
			return nil
		})
		if who := <-from; who != "203.0.113.1" {
			t.Errorf("the server sees %s", who)
		}
	}
	trial.Await(t, "the class has counted the queries", func() bool { return r.class("dns").Sent["upstream"].Packets == 2 })
	if out := r.must("sessions"); !strings.Contains(out, "203.0.113.2:53") {
		t.Errorf("shaper sessions prints\n%s", out)
	}
}

// openRelay opens a relay of an entry, which lasts as long as the test.
func openRelay(t *testing.T, entry string) (*net.UDPConn, error) {
	control, err := net.Dial("tcp", entry)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { control.Close() })
	bound, err := associate(control)
	if err != nil {
		return nil, err
	}
	relay, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(bound))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { relay.Close() })
	return relay, nil
}

// forwardBySOCKS passes on what comes to an address of loopback, which it returns, by a relay of an entry.
func (n *namespace) forwardBySOCKS(t *testing.T, entry, to string) (at string) {
	t.Helper()
	n.do(func() error {
		relay, err := openRelay(t, entry)
		if err != nil {
			return err
		}
		front, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		t.Cleanup(func() { front.Close() })
		at = front.LocalAddr().String()
		go func() {
			said, head := make([]byte, 1500), datagramHead(to)
			for {
				n, who, err := front.ReadFrom(said)
				if err != nil {
					return
				}
				relay.Write(append(head[:len(head):len(head)], said[:n]...))
				if n, err = relay.Read(said); err == nil && string(said[:len(head)]) == string(head) {
					front.WriteTo(said[len(head):n], who)
				}
			}
		}()
		return nil
	})
	return at
}

// associate asks for a relay, by SOCKS on a connection, and returns where it is.
func associate(control net.Conn) (relay netip.AddrPort, err error) {
	control.SetDeadline(time.Now().Add(patience))
	reply := make([]byte, 12)
	if _, err := control.Write([]byte("\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00")); err != nil {
		return relay, err
	}
	if _, err := io.ReadFull(control, reply); err != nil || string(reply[:6]) != "\x05\x00\x05\x00\x00\x01" {
		return relay, fmt.Errorf("UDP ASSOCIATE is answered by %q, %w", reply, err)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(reply[6:10])), binary.BigEndian.Uint16(reply[10:])), nil
}

// datagramHead returns the SOCKS header of a datagram to an address of IPv4.
func datagramHead(to string) []byte {
	at := netip.MustParseAddrPort(to)
	return binary.BigEndian.AppendUint16(append([]byte{0, 0, 0, 1}, at.Addr().AsSlice()...), at.Port())
}

// interceptingDatagrams is the policy of a router. Its listener has the port of one of the servers.
const interceptingDatagrams = `
[class.dns]
rate = "1000 packets/s"
[listener.x]
listen = ":54"
mode = "transparent"
inside = "udp"
allow = ["203.0.113.0/24:53-54", "[2001:db8:2::/64]:53-54"]
keep_source = true
class = "dns"
[class.cache]
rate = "1000 packets/s"
[listener.cache]
listen = ":53"
protocol = "udp"
upstream = "203.0.113.2:55"
class = "cache"
`

// A router intercepts datagrams: client and server see each other's addresses, and the class of the
// policy counts what passes. All else passes by. Another listener of shaper has a port of the servers. The rules of nftables and the routes are as before
// when they are removed.
func TestTransparentDatagrams(t *testing.T) {
	t.Parallel()
	dig := tool(t, "dig", "bind9-dnsutils")
	r := newRouter(t)
	r.in.output("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	before := r.state()
	r.program = startIn(r.in, t, plain(), interceptingDatagrams)
	r.nft(t, "apply")
	applied := r.state()
	sent := uint64(0)
	for i, server := range []string{"203.0.113.2", "2001:db8:2::2"} {
		from := r.answer(t, net.JoinHostPort(server, "53"), answerA)
		for range 3 { // each from another port
			r.client.do(func() error {
				if out, err := exec.Command(dig, "+short", "+notcp", "+tries=1", "+time=20", "@"+server, "api.acme.example").CombinedOutput(); err != nil || !strings.Contains(string(out), "192.0.2.77") {
					return fmt.Errorf("dig @%s: %w: %s", server, err, out)
				}
				return nil
			})
			if who := <-from; who != clients[i] {
				t.Errorf("%s sees %s", server, who)
			}
			sent++
		}
		for _, port := range []string{"54", "55"} {
			at := net.JoinHostPort(server, port)
			from := r.answer(t, at, func(said []byte) []byte { return said })
			for _, size := range []int{0, 1, 1400, 8000, 30_000} {
				r.client.exchange(t, at, size)
				if who := <-from; who != clients[i] {
					t.Errorf("%s sees %s", at, who)
				}
			}
		}
		sent += 5
		trial.Await(t, fmt.Sprintf("the class has sent %d datagrams", sent), func() bool { return r.class("dns").Sent["upstream"].Packets == sent })
	}
	if out := r.must("sessions"); !strings.Contains(out, "203.0.113.2:53") || !strings.Contains(out, "192.0.2.2:") {
		t.Errorf("shaper sessions prints\n%s", out)
	}
	r.clearsWhatItHasApplied(t, before, applied)
	if out := r.must("history"); !strings.Contains(out, "nft clear by uid=0 pid=") || !strings.Contains(out, "- nft inet shaper: the table and its routing\n") {
		t.Errorf("the history is\n%s", out)
	}
}

// answer answers datagrams at an address of the server. It returns who has sent them.
func (r *router) answer(t *testing.T, at string, to func([]byte) []byte) (from <-chan string) {
	t.Helper()
	hosts := make(chan string, 100)
	r.server.do(func() error {
		c, err := net.ListenPacket("udp", at)
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			said := make([]byte, 64<<10)
			for {
				n, who, err := c.ReadFrom(said)
				if err != nil {
					return
				}
				host, _, _ := net.SplitHostPort(who.String())
				hosts <- host
				c.WriteTo(to(said[:n]), who)
			}
		}()
		return nil
	})
	return hosts
}

// answerA answers a DNS query with the address 192.0.2.77.
func answerA(query []byte) []byte {
	end := 12
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	answer := append([]byte{query[0], query[1], 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0}, query[12:end+5]...)
	return append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 192, 0, 2, 77)
}

// exchange sends a datagram from a namespace to a server that sends it back. Only what comes from the
// address of the server counts.
func (n *namespace) exchange(t *testing.T, to string, size int) {
	t.Helper()
	n.do(func() error {
		c, err := net.Dial("udp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i)
		}
		if _, err := c.Write(data); err != nil {
			return err
		}
		got := make([]byte, 64<<10)
		n, err := c.Read(got)
		if err != nil || string(got[:n]) != string(data) {
			return fmt.Errorf("%d bytes to %s come back as %d, %w", size, to, n, err)
		}
		return nil
	})
}

// Datagrams that an entry does not pass on are counted by their reason, and the session of the client
// goes on.
func TestStrayDatagramsAreCounted(t *testing.T) {
	t.Parallel()
	server, addr := recordUDP(t)
	p := start(t, raced(t), fmt.Sprintf("[class.a]\nrate = \"8mbit\"\n[listener.l]\nlisten = \"127.0.0.1:0\"\nmode = \"socks5\"\nallow = [%q, \"*\", \"0.0.0.0/0\"]\nclass = \"a\"\n", addr))
	control := dial(t, "", p.addr("l"))
	at, err := associate(control)
	if err != nil {
		t.Fatal(err)
	}
	relay := dialUDP(t, at.String())
	fragment := datagramHead(addr)
	fragment[2] = 1
	for reason, datagrams := range map[string][][]byte{
		"header":   {{}, {0}, {0, 0, 0, 9}},
		"fragment": {fragment},
		"denied":   {datagramHead("127.0.0.2:9"), datagramHead("10.0.0.1:9"), datagramHead("169.254.169.254:80"), datagramHead("224.0.0.1:9")},
	} {
		for _, one := range datagrams {
			relay.Write(one)
		}
		metric := fmt.Sprintf(`shaper_stray_datagrams_total{listener="l",reason=%q}`, reason)
		trial.Await(t, metric, func() bool { return p.metric(metric) == float64(len(datagrams)) })
	}
	relay.Write(append(datagramHead(addr), "datagram"...))
	trial.Await(t, "the datagram arrives", func() bool { return len(server.all()) == 1 })
	control.Close()
	trial.Await(t, "all sessions have ended", func() bool { return len(p.sessions()) == 0 })
}

// A SOCKS client that vanishes does not hold its relay for ever, even while a server goes on sending.
func TestVanishedSOCKSClient(t *testing.T) {
	t.Parallel()
	r := newRouter(t)
	r.program = startIn(r.in, t, plain(), `
[class.a]
rate = "1000 packets/s"
[listener.socks]
listen = "192.0.2.1:1080"
mode = "socks5"
inside = "udp"
allow = "203.0.113.2:7000"
class = "a"
return_class = "a"
idle_timeout = "2s"
`)
	r.keepSending(t, "203.0.113.2:7000")
	r.client.do(func() error {
		relay, err := openRelay(t, "192.0.2.1:1080")
		if err != nil {
			return err
		}
		_, err = relay.Write(append(datagramHead("203.0.113.2:7000"), "datagram"...))
		return err
	})
	trial.Await(t, "the client has a destination", func() bool { return len(r.sessions()) == 2 })
	trial.Await(t, "the server sends", func() bool { return r.class("a").Sent["downstream"].Packets > 1 })
	r.client.run("ip link set wire down")
	trial.Await(t, "all sessions have ended", func() bool { return len(r.sessions()) == 0 })
}

// keepSending sends datagrams from an address of the server to whoever has sent one there.
func (r *router) keepSending(t *testing.T, at string) {
	t.Helper()
	r.server.do(func() error {
		c, err := net.ListenPacket("udp", at)
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			_, who, err := c.ReadFrom(make([]byte, 1500))
			for ; err == nil; time.Sleep(50 * time.Millisecond) {
				if _, err = c.WriteTo([]byte("more"), who); errors.Is(err, syscall.ECONNREFUSED) {
					err = nil
				}
			}
		}()
		return nil
	})
}

package tests

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// The tests of this file assert what the tests of nginx's stream proxy do (stream_*.t of
// nginx-tests), as far as it applies to shaper and no other test asserts it.

// connect_timeout covers the connect and the TLS handshakes only. After them, a session may be idle
// for longer.
func TestConnectTimeoutEndsWithTheConnect(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	a := newAuthority(t)
	pair := a.issue("localhost", "localhost", time.Time{})
	for name, c := range map[string]struct {
		line      string
		toClient  bool // TLS on the client's side
		toServers bool // TLS on the upstream's side
	}{
		"plain":           {"", false, false},
		"TLS of clients":  {a.terminating("localhost"), true, false},
		"TLS to upstream": {strings.Replace(a.originating(""), " }", `, server_name = "localhost" }`, 1), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepted := make(chan bool, 1)
			upstream := serve(t, func(conn *net.TCPConn) {
				accepted <- true
				if c.toServers {
					s := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}})
					io.Copy(s, s)
					s.Close()
					return
				}
				io.Copy(conn, conn)
			})
			p := start(t, plain(), tlsPolicy(upstream, fmt.Sprintf("connect_timeout = %q", timeout), c.line))
			var client net.Conn = dial(t, "", p.addr("a"))
			if c.toClient {
				s := tls.Client(client, &tls.Config{RootCAs: a.pool, ServerName: "localhost"})
				if err := s.Handshake(); err != nil {
					t.Fatal(err)
				}
				client = s
			}
			<-accepted
			time.Sleep(2 * timeout) // the test is about this idle time
			client.SetDeadline(time.Now().Add(patience))
			got := make([]byte, 3)
			if _, err := client.Write([]byte("foo")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(client, got); err != nil || string(got) != "foo" {
				t.Errorf("the echo is %q, %v", got, err)
			}
		})
	}
}

// Shaper connects and sends to the upstream from the address of bind.
func TestBindIsTheSource(t *testing.T) {
	t.Parallel()
	const from = "127.0.0.2"
	sources := make(chan string, 1)
	upstream := serve(t, func(c *net.TCPConn) { sources <- c.RemoteAddr().(*net.TCPAddr).IP.String() })
	datagrams, err := listenUDP("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	p := start(t, raced(t), fmt.Sprintf("%sbind = %q\n[listener.u]\nlisten = \"127.0.0.1:0\"\nprotocol = \"udp\"\nupstream = %q\nclass = \"u\"\nbind = %q\n[class.u]\nrate = \"8gbit\"\n",
		tlsPolicy(upstream), from, datagrams.LocalAddr(), from))
	dial(t, "", p.addr("a"))
	if got := <-sources; got != from {
		t.Errorf("the connection comes from %s, want %s", got, from)
	}
	if _, err := dialUDP(t, p.addr("u")).Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	datagrams.SetDeadline(time.Now().Add(patience))
	if _, got, err := datagrams.ReadFromUDP(make([]byte, 9)); err != nil || got.IP.String() != from {
		t.Errorf("the datagram comes from %v (%v), want %s", got, err, from)
	}
}

// After a datagram session has timed out, the client's next datagram begins a new one. Datagrams do
// not fail over: the second upstream gets none, though nobody listens at the first.
func TestDatagramsAfterTheTimeOut(t *testing.T) {
	t.Parallel()
	second, err := listenUDP("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	p := start(t, raced(t), fmt.Sprintf(`
[class.u]
rate = "8gbit"
[listener.echo]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = "echo:"
class = "u"
idle_timeout = "300ms"
[listener.dead]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = ["127.0.0.1:%s", %q]
class = "u"
idle_timeout = "300ms"
`, freePort(t), second.LocalAddr()))
	client, unlucky := dialUDP(t, p.addr("echo")), dialUDP(t, p.addr("dead"))
	client.SetDeadline(time.Now().Add(patience))
	for round := range 2 {
		if _, err := unlucky.Write([]byte("lost")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := client.Read(make([]byte, 9)); n != 1 || err != nil {
			t.Fatalf("round %d: %d bytes, %v", round, n, err)
		}
		trial.Await(t, "both sessions have ended", func() bool {
			return p.listener("echo").Ended["ok"] == uint64(round+1) && p.class("u").Sent["upstream"].Packets >= uint64(2*round+2) && len(p.sessions()) == 0
		})
	}
	second.SetDeadline(time.Now()) // datagrams that were charged would have arrived by now
	if n, err := second.Read(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the second upstream gets %d bytes (%v), want none", n, err)
	}
}

// max_connections counts the sessions of a class, whichever listener accepts them. Another class
// has its own count. A slot is free once its session has ended.
func TestPlacesAreOfTheClass(t *testing.T) {
	t.Parallel()
	upstream := serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
	policy := ""
	for _, name := range []string{"one", "other"} {
		policy += fmt.Sprintf("[class.%s]\nrate = \"8gbit\"\nmax_connections = 1\noverflow = \"refuse\"\n", name)
	}
	for listener, class := range map[string]string{"a": "one", "b": "one", "c": "other"} {
		policy += fmt.Sprintf("[listener.%s]\nlisten = \"127.0.0.1:0\"\nupstream = %q\nclass = %q\n", listener, upstream, class)
	}
	p := start(t, raced(t), policy)
	served := func(c *net.TCPConn) bool {
		c.SetDeadline(time.Now().Add(patience))
		c.Write([]byte("x"))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err == nil
	}
	long := dial(t, "", p.addr("a"))
	for _, c := range []struct {
		conn *net.TCPConn
		want bool
	}{
		{long, true},
		{dial(t, "", p.addr("b")), false},
		{dial(t, "", p.addr("c")), true},
		{long, true},
	} {
		if got := served(c.conn); got != c.want {
			t.Errorf("from %v to %v: served %v, want %v", c.conn.LocalAddr(), c.conn.RemoteAddr(), got, c.want)
		}
	}
	long.Close()
	trial.Await(t, "the long session has ended", func() bool { return p.listener("a").Ended["ok"] == 1 })
	if !served(dial(t, "", p.addr("b"))) {
		t.Error("the slot of the session that ended is not free")
	}
}

// Shaper verifies an upstream's certificate against its subject alternative names. An asterisk at
// the beginning of a name stands for one label. The common name does not count (RFC 9525).
func TestNamesOfCertificates(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	for _, c := range []struct {
		issued, wanted string
		ok             bool
	}{
		{"example.com", "example.com", true},
		{"*.example.com", "foo.example.com", true},
		{"*.example.com", "no.match.example.com", false},
		{"*.example.com", "example.com", false},
		{"*.example.com", "common.name.example", false},
	} {
		pair := a.issue("common.name.example", c.issued, time.Time{})
		upstream := serve(t, func(conn *net.TCPConn) {
			s := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}})
			s.Write([]byte("OK"))
			s.Close()
		})
		p := start(t, plain(), tlsPolicy(upstream, strings.Replace(a.originating(""), " }", fmt.Sprintf(", server_name = %q }", c.wanted), 1)))
		client := dial(t, "", p.addr("a"))
		client.SetDeadline(time.Now().Add(patience))
		if got, err := io.ReadAll(client); (err == nil && string(got) == "OK") != c.ok {
			t.Errorf("certificate for %s, server_name %s: the client gets %q, %v", c.issued, c.wanted, got, err)
		}
	}
}

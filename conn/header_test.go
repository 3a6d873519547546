package conn

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shaper/entry"
	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

var teller = entry.Proxy{Source: netip.MustParseAddrPort("203.0.113.5:12345"), Destination: netip.MustParseAddrPort("198.51.100.7:80")}

// accepting is the line of a listener's section that accepts PROXY headers from 127.0.0.1.
const accepting = `accept_proxy = ["192.0.2.0/24", "127.0.0.1"]`

// toldRules give the told address, and the real one, classes of their own.
const toldRules = "[[rule]]\nsource = \"203.0.113.0/24\"\nclass = \"told\"\n[[rule]]\nsource = \"127.0.0.0/8\"\nclass = \"real\"\n"

func toldPolicy(upstream string, more ...string) string {
	return class("told", fast) + class("real", fast) + forward(upstream, fast, more...) + toldRules
}

// Rules see the address that a header tells, whatever its version and however it comes. What
// follows the header reaches the upstream. `sessions` and the log show both addresses.
func TestAcceptProxy(t *testing.T) {
	for what, c := range map[string]struct{ header, class, client string }{
		"v1":       {string(teller.AppendLine(nil)), "told", "203.0.113.5:12345 via "},
		"v2":       {string(teller.AppendBinary(nil, false)), "told", "203.0.113.5:12345 via "},
		"unknown":  {string(entry.Proxy{}.AppendLine(nil)), "real", ""},
		"no route": {string(entry.Proxy{}.AppendBinary(nil, false)), "real", ""},
	} {
		for _, piece := range []int{1, 5, 1000} {
			t.Run(fmt.Sprintf("%s in pieces of %d", what, piece), virtual(func(t *testing.T) {
				upstream, conns := listen(t)
				r := run(t, toldPolicy(upstream, accepting))
				client := r.dial("l")
				for rest := c.header + "payload"; rest != ""; {
					n := min(piece, len(rest))
					send(t, client, rest[:n])
					rest = rest[n:]
				}
				server := next(t, conns)
				expect(t, server, "payload")
				want := c.client + client.LocalAddr().String()
				if all := r.Sessions(); len(all) != 1 || all[0].Class != c.class || all[0].Client != want {
					t.Errorf("the sessions are %+v, want class %s and client %s", all, c.class, want)
				}
				send(t, server, "answer")
				expect(t, client, "answer")
				client.CloseWrite()
				expectEOF(t, server)
				server.CloseWrite()
				expectEOF(t, client)
				r.awaitEnd(stats.OK, 1)
			}))
		}
	}
}

// From a network that is not listed, a header is only bytes.
func TestProxyFromOthers(t *testing.T) {
	virtually(t, func(t *testing.T) {
		upstream, conns := listen(t)
		r := run(t, toldPolicy(upstream, `accept_proxy = "192.0.2.0/24"`))
		header := string(teller.AppendLine(nil))
		send(t, r.dial("l"), header)
		expect(t, next(t, conns), header)
		if all := r.Sessions(); len(all) != 1 || all[0].Class != "real" {
			t.Errorf("the sessions are %+v", all)
		}
	})
}

// A connection of a listed network that begins with something else is closed and counted, and so
// is one that takes too long, or ends too soon. One that says nothing and leaves is only a
// health check.
func TestNoProxyHeader(t *testing.T) {
	header := string(teller.AppendBinary(nil, false))
	for what, c := range map[string]struct {
		text string
		ends bool
		want stats.Result
		log  string
	}{
		"http":        {"GET / HTTP/1.1\r\n\r\n", false, stats.NoHeader, "it does not begin with a PROXY header"},
		"too long":    {header[:14] + "\xff\xff", false, stats.NoHeader, "longer than 4096 bytes"},
		"silence":     {"", false, stats.NoHeader, "i/o timeout"},
		"half":        {header[:20], false, stats.NoHeader, "i/o timeout"},
		"end in half": {header[:20], true, stats.NoHeader, "unexpected EOF"},
		"end":         {"", true, stats.Aborted, ""},
	} {
		t.Run(what, virtual(func(t *testing.T) {
			r := run(t, toldPolicy(policy.Echo, accepting))
			began := time.Now()
			client := r.dial("l")
			send(t, client, c.text)
			if c.ends {
				client.CloseWrite()
			}
			io.Copy(io.Discard, client)
			r.awaitEnd(c.want, 1)
			took := time.Since(began)
			if late := strings.Contains(c.log, "timeout"); late && (took < headerPatience || took > headerPatience+time.Second) || !late && took > time.Second {
				t.Errorf("it took %v", took)
			}
			if !strings.Contains(r.log.String(), c.log) || (c.log == "") != (r.log.String() == "") {
				t.Errorf("the log is %q", r.log)
			}
		}))
	}
}

// A client that resets the connection before its header has come ends the session.
func TestResetBeforeHeader(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := run(t, toldPolicy(policy.Echo, accepting))
		client := r.dial("l")
		send(t, client, "PROXY ")
		trial.Await(t, "there is a session", func() bool { return len(r.Sessions()) == 1 })
		reset(client)
		r.awaitEnd(stats.ResetByPeer, 1)
	})
}

// A client that leaves right behind its header, so that the session sees both at once, waits for no permit.
func TestLeavesBehindItsHeader(t *testing.T) {
	for what, leave := range map[string]func(tcpConn){"fin": func(c tcpConn) { c.CloseWrite() }, "reset": reset} {
		t.Run(what, virtual(func(t *testing.T) {
			upstream, conns := listen(t)
			r := run(t, class("c", "1 connections/h", "max_connections = 1", `overflow = "wait"`)+listener("l", "tcp", upstream, "c", accepting))
			header := string(teller.AppendLine(nil))
			first := r.dial("l")
			send(t, first, header)
			next(t, conns)
			second := r.dial("l")
			trial.Await(t, "it has begun", func() bool { return len(r.Sessions()) == 2 })
			r.one().do(func(*tcpSession) { // so the poller waits for the first session meanwhile
				send(t, first, "x")
				send(t, second, header)
				leave(second)
			})
			r.awaitEndOf(stats.Aborted, 1)
		}))
	}
}

// The header comes before TLS, on both sides.
func TestProxyAndTLS(t *testing.T) {
	a := newAuthority(t)
	cert := a.issue("server")
	upstream, conns := listen(t)
	r := run(t, toldPolicy(upstream, accepting, `send_proxy = "v2"`, cert.terminating(),
		fmt.Sprintf(`upstream_tls = { ca = %q, server_name = "localhost" }`, a.file)))
	raw := r.dial("l")
	send(t, raw, string(teller.AppendLine(nil)))
	client := tls.Client(raw, &tls.Config{RootCAs: a.pool, ServerName: "localhost"})
	done := make(chan error, 1)
	go func() { done <- client.Handshake() }()
	plain := next(t, conns)
	expect(t, plain, string(teller.AppendBinary(nil, false)))
	server := tls.Server(plain, &tls.Config{Certificates: []tls.Certificate{cert.pair}})
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	send(t, client, "question")
	expect(t, server, "question")
	if all := r.Sessions(); len(all) != 1 || all[0].Class != "told" {
		t.Errorf("the sessions are %+v", all)
	}
}

// Without accept_proxy, the header for the upstream tells the real addresses of the client.
func TestSendProxy(t *testing.T) {
	virtually(t, func(t *testing.T) {
		for version, header := range map[string]func(entry.Proxy) []byte{
			"v1": func(h entry.Proxy) []byte { return h.AppendLine(nil) },
			"v2": func(h entry.Proxy) []byte { return h.AppendBinary(nil, false) },
		} {
			upstream, conns := listen(t)
			r := run(t, forward(upstream, fast, fmt.Sprintf("send_proxy = %q", version)))
			client := r.dial("l")
			want := header(entry.Proxy{Source: addrPortOf(client.LocalAddr()), Destination: addrPortOf(client.RemoteAddr())})
			send(t, client, "payload")
			expect(t, next(t, conns), string(want)+"payload")
			if moved := r.Sessions()[0].Upward; moved != uint64(len("payload")) {
				t.Errorf("%d bytes count, want those of the payload", moved)
			}
			r.Shutdown(expired)
		}
	})
}

// The header for the upstream tells where a client with TLS has connected to.
func TestSendProxyOfTLSClient(t *testing.T) {
	cert := newAuthority(t)
	upstream, conns := listen(t)
	r := run(t, forward(upstream, fast, `send_proxy = "v1"`, cert.issue("localhost").terminating()))
	client := r.dialTLS("l", cert.trusting())
	send(t, client, "payload")
	expect(t, next(t, conns), fmt.Sprintf("PROXY TCP4 127.0.0.1 127.0.0.1 %d %d\r\npayload", addrPortOf(client.LocalAddr()).Port(), addrPortOf(client.RemoteAddr()).Port()))
}

// The header for the upstream says that a client of a unix socket has no address.
func TestSendProxyOfUnixClient(t *testing.T) {
	upstream, conns := listen(t)
	at := "unix:" + filepath.Join(trial.ShortDir(t), "s")
	run(t, forward(upstream, fast, listenAt(at), `send_proxy = "v1"`))
	send(t, dialUnix(t, at), "payload")
	expect(t, next(t, conns), "PROXY UNKNOWN\r\npayload")
}

// Each datagram begins with a header of version 2, also those that came as one train. Answers
// pass as they are.
func TestSendProxyOverUDP(t *testing.T) {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.SetDeadline(time.Now().Add(patience))
	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		r := run(t, class("c", fast)+listener("l", "udp", server.LocalAddr().String(), "c", listenAt(at), `send_proxy = "v2"`))
		port := netip.MustParseAddrPort(r.addr("l")).Port()
		client, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		client.SetDeadline(time.Now().Add(patience))
		header := string(entry.Proxy{Source: addrPortOf(client.LocalAddr()), Destination: addrPortOf(client.RemoteAddr())}.AppendBinary(nil, true))
		buf := make([]byte, 2000)
		for _, sent := range []string{"one", "", strings.Repeat("x", 1200), "two"} {
			send(t, client, sent)
			n, from, err := server.ReadFrom(buf)
			if err != nil || string(buf[:n]) != header+sent {
				t.Fatalf("of %q the upstream gets %q, %v", sent, buf[:n], err)
			}
			server.WriteTo([]byte("answer"), from)
			expect(t, client, "answer")
		}
		trial.Await(t, "the payload counts", func() bool { return r.sent("c", stats.Upstream).Bytes.Load() == 1206 })
		r.Shutdown(expired)
	}
}

package conn

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// Bytes pass in both directions, and each side speaks its own TLS.
func TestTLSOnBothSides(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	send(t, client, "ping")
	expect(t, upstream, "ping")
	send(t, upstream, "pong")
	expect(t, client, "pong")
	if one := s.Sessions()[0]; one.ClientTLS != "1.3" || one.UpstreamTLS != "1.3" {
		t.Errorf("the session is shown as %+v", one)
	}
	if n := s.sent("c", stats.Upstream).Bytes.Load(); n != 4 {
		t.Errorf("%d bytes are counted, want the 4 of the payload", n)
	}
	client.CloseWrite()
	expectEOF(t, upstream)
	upstream.CloseWrite()
	expectEOF(t, client)
	s.awaitEnd(stats.OK, 1)
}

// An upstream gets the server name that we expect, our offer of HTTP/1.1, and our certificate.
func TestTLSClientHello(t *testing.T) {
	a := newAuthority(t)
	cert, ours := a.issue("server"), a.issue("we")
	addr, conns := listen(t)
	_, port, _ := net.SplitHostPort(addr)
	for _, c := range []struct{ upstream, more, name string }{
		{"localhost:" + port, "", "localhost"},
		{"127.0.0.1:" + port, "", ""}, // an address is not sent (RFC 6066, 3), but is verified
		{"127.0.0.1:" + port, `, server_name = "localhost"`, "localhost"},
	} {
		more := fmt.Sprintf("%s, cert = %q, key = %q", c.more, ours.cert, ours.key)
		r := run(t, forward(c.upstream, fast, `bind = "127.0.0.1"`, a.originating(more)))
		r.dial("l")
		config := serving(cert)
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, a.pool
		var hello *tls.ClientHelloInfo
		config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) { hello = h; return nil, nil }
		state := nextTLS(t, conns, config).ConnectionState()
		if hello.ServerName != c.name || strings.Join(hello.SupportedProtos, " ") != "http/1.1" {
			t.Errorf("%s%s: it is told %q and %q", c.upstream, c.more, hello.ServerName, hello.SupportedProtos)
		}
		if got := state.PeerCertificates[0].Subject.CommonName; got != "we" {
			t.Errorf("we are %q", got)
		}
		for _, version := range hello.SupportedVersions {
			if version < tls.VersionTLS12 {
				t.Errorf("version %#x is offered", version)
			}
		}
	}
}

// A session resumes the TLS of an earlier one with the same upstream, and so does a check. A reload reads the
// certificates of authorities once more, so what it puts in force resumes nothing from before.
func TestTLSIsResumed(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		a := newAuthority(t)
		config := serving(a.issue("server"))
		config.MaxVersion = version
		addr, conns := listen(t)
		text := forward(addr, fast, a.originating(""))
		r := run(t, text)
		session := func(resumed bool) {
			t.Helper()
			before := r.service("l").stats.Ended[stats.OK].Load()
			client := r.dial("l")
			upstream := nextTLS(t, conns, config)
			if got := upstream.ConnectionState().DidResume; got != resumed {
				t.Errorf("version %#x: resumed: %v, want %v", version, got, resumed)
			}
			send(t, upstream, "hello")
			expect(t, client, "hello") // the ticket has come before that
			client.Close()
			upstream.Close()
			r.awaitEndOf(stats.OK, before+1)
		}
		session(false)
		session(true)
		session(true)
		r.reload(text)
		session(false)
		checked := make(chan error)
		go func() {
			c, err := r.dialCheck(t.Context(), r.service("l").terms.Load(), addr, netip.MustParseAddrPort(addr))
			if err == nil {
				c.Close()
			}
			checked <- err
		}()
		if upstream := nextTLS(t, conns, config); !upstream.ConnectionState().DidResume {
			t.Errorf("version %#x: a check resumes nothing", version)
		}
		if err := <-checked; err != nil {
			t.Error(err)
		}
	}
}

// With a certificate of ours nothing is resumed: a server may refuse a resumed client only when the handshake is over.
func TestTLSWithOurCertificateIsNotResumed(t *testing.T) {
	a := newAuthority(t)
	config, we := serving(a.issue("server")), a.issue("we")
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, a.pool
	addr, conns := listen(t)
	r := run(t, forward(addr, fast, a.originating(fmt.Sprintf(", cert = %q, key = %q", we.cert, we.key))))
	for range 3 {
		client := r.dial("l")
		upstream := nextTLS(t, conns, config)
		if upstream.ConnectionState().DidResume {
			t.Error("a session with our certificate is resumed")
		}
		send(t, upstream, "hello")
		expect(t, client, "hello")
		client.Close()
		upstream.Close()
	}
}

// An upstream that has forgotten a session gets a whole handshake, by which it is known. Other upstreams have sessions
// of their own.
func TestTLSIsNotResumedElsewhere(t *testing.T) {
	a := newAuthority(t)
	one, oneConns := listen(t)
	two, twoConns := listen(t)
	r := run(t, class("c", fast)+fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nupstream = [%q, %q]\nbalance = \"round-robin\"\nclass = \"c\"\n%s\n", one, two, a.originating("")))
	resumed := func(config *tls.Config) (n int) {
		for range 4 {
			client := r.dial("l")
			var tcp tcpConn
			select {
			case tcp = <-oneConns:
			case tcp = <-twoConns:
			case <-time.After(patience):
				t.Fatal("no upstream gets a connection")
			}
			upstream := tls.Server(tcp, config)
			send(t, upstream, "hello")
			expect(t, client, "hello")
			if upstream.ConnectionState().DidResume {
				n++
			}
			client.Close()
			upstream.Close()
		}
		return n
	}
	config := serving(a.issue("server"))
	if n := resumed(config); n != 2 {
		t.Errorf("%d of 4 sessions with two upstreams are resumed, want the second with each", n)
	}
	if n := resumed(serving(a.issue("another"))); n != 2 {
		t.Errorf("%d of 4 sessions with upstreams that have begun anew are resumed, want the second with each", n)
	}
}

// What waits for a peer that does not read is bounded, and arrives when it reads.
func TestTLSBackpressure(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat(noise(1<<20), 32)
	for _, way := range []string{"upstream", "downstream"} {
		s := runSecure(t, fast)
		client, upstream := s.ends()
		from, to := client, upstream
		if way == "downstream" {
			from, to = to, from
		}
		var written int
		var lock sync.Mutex
		go func() {
			for rest := data; len(rest) > 0; rest = rest[16<<10:] {
				if _, err := from.Write(rest[:16<<10]); err != nil {
					return
				}
				lock.Lock()
				written += 16 << 10
				lock.Unlock()
			}
			from.CloseWrite()
		}()
		stalled := func() int {
			for last := -1; ; time.Sleep(200 * time.Millisecond) {
				lock.Lock()
				now := written
				lock.Unlock()
				if now == last {
					return now
				}
				last = now
			}
		}()
		if stalled > 24<<20 {
			t.Errorf("%s: %d bytes are taken of a peer that nobody reads for", way, stalled)
		}
		to.tcp.SetDeadline(time.Now().Add(patience))
		got, err := io.ReadAll(to)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: other bytes arrive: %d of %d, %v", way, len(got), len(data), err)
		}
	}
}

// A TLS client feels a slow class about as soon as any other: little of what it writes waits
// in between.
func TestTLSSlowClassIsFelt(t *testing.T) {
	t.Parallel()
	s := runSecure(t, "64KiB/s")
	client, _ := s.ends()
	client.tcp.(*net.TCPConn).SetWriteBuffer(8 << 10)
	client.tcp.SetWriteDeadline(time.Now().Add(time.Second))
	written := 0
	for piece := make([]byte, 4<<10); ; written += len(piece) {
		if _, err := client.Write(piece); err != nil {
			break
		}
	}
	// One second of the class, and a receive buffer of three segments of the loopback device.
	if written > 64<<10+600<<10 {
		t.Errorf("%d bytes are taken in a second", written)
	}
}

// Bytes pass in both directions at once, in pieces of all sizes, unchanged.
func TestTLSPieces(t *testing.T) {
	s := runSecure(t, "400MB/s", `return_class = "c"`)
	client, upstream := s.ends()
	up, down := noise(3<<20), noise(5<<20)
	var wg sync.WaitGroup
	for _, w := range []struct {
		from, to secured
		data     []byte
	}{{client, upstream, up}, {upstream, client, down}} {
		wg.Go(func() {
			for rest, n := w.data, 1; len(rest) > 0; n = n*7%40_009 + 1 {
				n = min(n, len(rest))
				if _, err := w.from.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
			w.from.CloseWrite()
		})
		wg.Go(func() {
			if got, err := io.ReadAll(w.to); err != nil || !bytes.Equal(got, w.data) {
				t.Errorf("other bytes arrive: %d of %d, %v", len(got), len(w.data), err)
			}
		})
	}
	wg.Wait()
	s.awaitEnd(stats.OK, 1)
}

// After a reload new sessions have the new certificates, even if the text of the policy is the
// same. Open sessions go on.
func TestTLSReload(t *testing.T) {
	s := runSecure(t, fast)
	text := forward(s.addr, fast, s.cert.terminating(), s.originating(""))
	client, upstream := s.ends()
	second := s.issue("server", func(c *x509.Certificate) { c.Subject.CommonName = "second" })
	subject := func() string {
		c, _ := s.ends()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := subject(); got != "server" {
		t.Errorf("before the reload it is %q", got)
	}
	s.reload(text)
	if got := subject(); got != "second" {
		t.Errorf("after the reload it is %q", got)
	}
	send(t, client, "still here")
	expect(t, upstream, "still here")

	s.write(second.key, []byte("nonsense"))
	if _, err := s.prepare(text); err == nil || !strings.Contains(err.Error(), "listener.l.tls.key: ") {
		t.Errorf("a bad key is taken: %v", err)
	}
	if got := subject(); got != "second" {
		t.Errorf("after a reload that was refused it is %q", got)
	}
}

// TLS comes and goes with a reload.
func TestTLSSwitchedOnAndOff(t *testing.T) {
	s := runSecure(t, fast)
	s.reload(forward(s.addr, fast))
	client := s.dial("l")
	send(t, client, "plain")
	expect(t, next(t, s.conns), "plain")
	s.reload(forward(s.addr, fast, s.cert.terminating()))
	secure := s.dialTLS("l", s.trusting())
	send(t, secure, "secret")
	expect(t, next(t, s.conns), "secret")
}

// Rules see a TLS client as any other. It waits for its permit after its handshake.
func TestTLSPermits(t *testing.T) {
	a := newAuthority(t)
	addr, conns := listen(t)
	r := run(t, class("c", fast, "max_connections = 1")+listener("l", "tcp", addr, "c", a.issue("server").terminating()))
	first := r.dialTLS("l", a.trusting())
	upstream := next(t, conns)
	second := r.dialTLS("l", a.trusting())
	send(t, second, "waiting")
	first.Close()
	upstream.Close()
	expect(t, next(t, conns), "waiting")
}

// Marks reach the packets of a connection beneath TLS, even when they change.
func TestTLSMarks(t *testing.T) {
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil {
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1); err != nil {
			trial.SkipUnlessCI(t, "marks need CAP_NET_ADMIN")
		}
	}
	s := runSecure(t, fast)
	s.marks.byClass.Store(&map[string]uint32{"c": 7})
	client, upstream := s.ends()
	send(t, client, "x")
	expect(t, upstream, "x")
	one := s.one()
	marked := func() int {
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.upstream.end.Get(sock.Mark)
	}
	if got := marked(); got != 7 {
		t.Errorf("the mark is %d, want 7", got)
	}
	s.marks.byClass.Store(&map[string]uint32{"c": 9})
	s.sessions.remark()
	if got := marked(); got != 9 {
		t.Errorf("the mark is %d, want 9", got)
	}
}

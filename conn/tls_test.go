package conn

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/stats"
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

// An end goes on as an end behind the bytes, and the other direction lives on; in
// each of the arrangements.
func TestTLSHalfClose(t *testing.T) {
	for _, c := range []struct{ client, upstream bool }{{true, false}, {false, true}, {true, true}} {
		a := newAuthority(t)
		cert := a.issue("server")
		addr, conns := listen(t)
		var lines []string
		if c.client {
			lines = append(lines, cert.terminating())
		}
		if c.upstream {
			lines = append(lines, a.originating(""))
		}
		r := run(t, forward(addr, "400kB/s", lines...))
		client, upstream := halves(r, conns, a, cert, c.client, c.upstream)
		request := strings.Repeat("request ", 10_000)
		send(t, client, request)
		client.CloseWrite()
		expect(t, upstream, request)
		expectEOF(t, upstream)
		for _, answer := range []string{"answer", strings.Repeat("more ", 100_000)} {
			go io.WriteString(upstream, answer)
			expect(t, client, answer)
		}
		upstream.CloseWrite()
		expectEOF(t, client)
		r.awaitEnd(stats.OK, 1)
	}
}

// halfCloser is a connection of either kind.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func halves(r *rig, conns <-chan *net.TCPConn, a *authority, cert issued, secureClient, secureUpstream bool) (client, upstream halfCloser) {
	r.t.Helper()
	client = r.dial("l")
	if secureClient {
		client.Close()
		r.awaitEnd(stats.Aborted, 1)
		client = r.dialTLS("l", a.trusting())
	}
	upstream = next(r.t, conns)
	if secureUpstream {
		c := tls.Server(upstream, serving(cert))
		if err := c.Handshake(); err != nil {
			r.t.Fatal(err)
		}
		upstream = c
	}
	return client, upstream
}

// An upstream is told whose it is to be, that HTTP/1.1 is spoken, and who we are.
func TestTLSClientHello(t *testing.T) {
	a := newAuthority(t)
	cert, ours := a.issue("server"), a.issue("we")
	addr, conns := listen(t)
	_, port, _ := net.SplitHostPort(addr)
	for _, c := range []struct{ upstream, more, name string }{
		{"localhost:" + port, "", "localhost"},
		{"127.0.0.1:" + port, "", ""}, // an address is not sent (RFC 6066, 3), and is verified
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

// TLS that ends without a close_notify never looks complete, though what came before
// it arrives.
func TestTLSTruncation(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	send(t, client, "a beginning")
	client.tcp.CloseWrite() // a FIN between two records
	expect(t, upstream, "a beginning")
	expectCut(t, upstream)
	s.awaitEnd(stats.ResetByPeer, 1)

	client, upstream = s.ends()
	send(t, upstream, "an answer")
	upstream.tcp.Close()
	expect(t, client, "an answer")
	expectCut(t, client)
	s.awaitEnd(stats.ResetByPeer, 2)

	client, upstream = s.ends()
	reset(upstream.tcp)
	expectCut(t, client)
	s.awaitEnd(stats.ResetByPeer, 3)
}

// An upstream that closes without a close_notify, as many do, loses nothing of its
// answer, however long that takes through its class.
func TestTLSTruncationLosesNothing(t *testing.T) {
	for _, secureClient := range []bool{false, true} {
		a := newAuthority(t)
		cert := a.issue("server")
		addr, conns := listen(t)
		lines := []string{a.originating(""), `return_class = "back"`, `idle_timeout = "100ms"`}
		if secureClient {
			lines = append(lines, cert.terminating())
		}
		r := run(t, forward(addr, fast, lines...)+class("back", "1MB/s"))
		var client net.Conn
		if secureClient {
			client = r.dialTLS("l", a.trusting())
		} else {
			client = r.dial("l")
		}
		upstream := nextTLS(t, conns, serving(cert))
		data := noise(1_300_000)
		go func() {
			upstream.Write(data)
			upstream.tcp.Close()
		}()
		got := make([]byte, len(data))
		if n, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d of %d bytes arrive, %v", n, len(data), err)
		}
		expectCut(t, client)
		r.awaitEnd(stats.ResetByPeer, 1)
	}
}

// expectCut reads until the connection ends, which must be by a reset beneath TLS.
func expectCut(t testing.TB, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want ECONNRESET", err)
	}
}

// A client that resets while its bytes wait is noticed, though nobody reads from it.
func TestTLSResetWhileWaiting(t *testing.T) {
	s := runSecure(t, "0B/s", `idle_timeout = "100ms"`)
	client, upstream := s.ends()
	go client.Write(make([]byte, 4<<20))
	until(t, "bytes wait", func() bool { all := s.Sessions(); return len(all) == 1 && all[0].Waiting > 0 })
	reset(client.tcp)
	expectCut(t, upstream)
	s.awaitEnd(stats.ResetByPeer, 1)
}

// What waits on the way to a peer that does not read is bounded, and arrives.
func TestTLSBackpressure(t *testing.T) {
	for _, way := range []string{"upstream", "downstream"} {
		s := runSecure(t, fast)
		client, upstream := s.ends()
		from, to := client, upstream
		if way == "downstream" {
			from, to = to, from
		}
		data := noise(32 << 20)
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

// A slow class is felt by a client of TLS about as soon as by another: little of what it
// writes waits in between.
func TestTLSSlowClassIsFelt(t *testing.T) {
	s := runSecure(t, "64KiB/s")
	client, _ := s.ends()
	client.tcp.SetWriteBuffer(8 << 10)
	client.tcp.SetWriteDeadline(time.Now().Add(time.Second))
	written := 0
	for piece := make([]byte, 4<<10); ; written += len(piece) {
		if _, err := client.Write(piece); err != nil {
			break
		}
	}
	// A second of the class, and what a receive buffer of three segments of the loopback
	// device holds.
	if written > 64<<10+600<<10 {
		t.Errorf("%d bytes are taken in a second", written)
	}
}

// Bytes pass both ways at once in pieces of all sizes, unchanged.
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

// Clients with which no handshake comes about are ended, counted and told of.
func TestTLSOfClientFails(t *testing.T) {
	a := newAuthority(t)
	cert := a.issue("server")
	other := newAuthority(t)
	stranger := other.issue("stranger")
	addr, _ := listen(t)
	terminating := fmt.Sprintf("tls = { cert = %q, key = %q, client_ca = %q }", cert.cert, cert.key, a.file)
	for name, c := range map[string]struct {
		do   func(*rig)
		said string
	}{
		"it never speaks":      {func(r *rig) { expectCut(t, r.dial("l")) }, "i/o timeout"},
		"it speaks plain text": {func(r *rig) { c := r.dial("l"); send(t, c, "GET / HTTP/1.1\r\n\r\n"); io.Copy(io.Discard, c) }, "does not look like a TLS handshake"},
		"it is cut short": {func(r *rig) {
			c := r.dial("l")
			send(t, c, "\x16\x03\x01\x02\x00\x01")
			c.CloseWrite()
			io.Copy(io.Discard, c)
		}, "EOF"},
		"it does not trust us": {func(r *rig) { shake(r, other.trusting()) }, "bad certificate"},
		"it is too old": {func(r *rig) {
			shake(r, &tls.Config{RootCAs: a.pool, ServerName: "localhost", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
		}, "unsupported versions"},
		"it has no certificate": {func(r *rig) { shake(r, a.trusting()) }, "client didn't provide a certificate"},
		"it has a stranger's certificate": {func(r *rig) {
			config := a.trusting()
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger.pair, nil }
			shake(r, config)
		}, "signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, forward(addr, fast, terminating, `connect_timeout = "300ms"`))
			c.do(r)
			r.awaitEnd(stats.TLSFailed, 1)
			if log := r.log.String(); !strings.Contains(log, "TLS handshake with a client failed") || !strings.Contains(log, c.said) {
				t.Errorf("logged is\n%s", log)
			}
		})
	}
}

// shake does a handshake that is to fail, at once or at the first read.
func shake(r *rig, config *tls.Config) {
	r.t.Helper()
	c := tls.Client(r.dial("l"), config)
	defer c.Close()
	if err := c.Handshake(); err == nil {
		if _, err = c.Read(make([]byte, 1)); err == nil {
			r.t.Error("the handshake is done")
		}
	}
}

// A client that leaves before its handshake is no failure of TLS.
func TestTLSClientLeavesAtOnce(t *testing.T) {
	a := newAuthority(t)
	addr, _ := listen(t)
	r := run(t, forward(addr, fast, a.issue("server").terminating()))
	r.dial("l").Close()
	r.awaitEnd(stats.Aborted, 1)
	if log := r.log.String(); log != "" {
		t.Errorf("logged is\n%s", log)
	}
}

// An upstream with which no handshake comes about is as good as none: the log says
// why, and the next one is tried.
func TestTLSOfUpstreamFails(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	good := a.issue("server")
	expired := a.issue("expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	misnamed := a.issue("misnamed", func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"other.example"}, nil })
	foreign := other.issue("foreign")
	ended := func(c *tls.Conn) { c.Handshake(); c.Close() }
	for name, c := range map[string]struct {
		serve func(*net.TCPConn)
		said  string
	}{
		"a foreign authority": {func(c *net.TCPConn) { ended(tls.Server(c, serving(foreign))) }, "signed by unknown authority"},
		"an expired one":      {func(c *net.TCPConn) { ended(tls.Server(c, serving(expired))) }, "certificate has expired"},
		"another's":           {func(c *net.TCPConn) { ended(tls.Server(c, serving(misnamed))) }, "doesn't contain any IP SANs"},
		"it is too old": {func(c *net.TCPConn) {
			config := serving(good)
			config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
			ended(tls.Server(c, config))
		}, "protocol version"},
		"it speaks plain text": {func(c *net.TCPConn) { io.WriteString(c, "220 ready\r\n"); io.Copy(io.Discard, c) }, "does not look like a TLS handshake"},
		"it is silent":         {func(c *net.TCPConn) { io.Copy(io.Discard, c) }, "i/o timeout"},
		"it leaves":            {func(c *net.TCPConn) { c.Close() }, "TLS handshake: "},
	} {
		t.Run(name, func(t *testing.T) {
			bad, conns := listen(t)
			r := run(t, forward(bad, fast, a.originating(""), `connect_timeout = "400ms"`))
			client := r.dial("l")
			c.serve(next(t, conns))
			expectCut(t, client)
			r.awaitEnd(stats.TLSFailed, 1)
			log := r.log.String()
			if !strings.Contains(log, "no upstream could be reached") || !strings.Contains(log, "dial "+bad+": TLS handshake: ") || !strings.Contains(log, c.said) {
				t.Errorf("logged is\n%s", log)
			}
		})
	}
}

func TestTLSGoesOnToTheNextUpstream(t *testing.T) {
	a := newAuthority(t)
	good := a.issue("server")
	bad, badConns := listen(t)
	addr, conns := listen(t)
	r := run(t, class("c", fast)+fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nupstream = [%q, %q]\nclass = \"c\"\n%s\n", bad, addr, a.originating("")))
	client := r.dial("l")
	send(t, client, "early")
	next(t, badConns).Close()
	expect(t, nextTLS(t, conns, serving(good)), "early")
	if got := r.Sessions()[0].Upstream; got != addr {
		t.Errorf("the upstream is %s, want %s", got, addr)
	}
}

// With TLS 1.3 an upstream refuses our certificate after the handshake.
func TestTLSUpstreamRefusesUs(t *testing.T) {
	s := runSecure(t, fast)
	client := s.dialTLS("l", s.trusting())
	config := serving(s.cert)
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, s.pool
	upstream := tls.Server(next(t, s.conns), config)
	if err := upstream.Handshake(); err == nil {
		t.Fatal("it takes anybody")
	}
	upstream.Close()
	expectCut(t, client)
	s.awaitEnd(stats.TLSFailed, 1)
	if log := s.log.String(); !strings.Contains(log, "certificate required") || !strings.Contains(log, "upstream "+s.addr) {
		t.Errorf("logged is\n%s", log)
	}
}

func TestTLSInsecure(t *testing.T) {
	s := runSecure(t, fast)
	foreign := newAuthority(t).issue("foreign")
	s.reload(forward(s.addr, fast, `upstream_tls = { insecure = true }`))
	client := s.dial("l")
	send(t, client, "x")
	expect(t, nextTLS(t, s.conns, serving(foreign)), "x")
}

// A client that leaves during the upstream's handshake is not waited for.
func TestTLSClientLeavesDuringHandshake(t *testing.T) {
	s := runSecure(t, fast)
	client := s.dialTLS("l", s.trusting())
	upstream := next(t, s.conns)
	upstream.Read(make([]byte, 1)) // the hello has come
	reset(client.tcp)
	s.awaitEnd(stats.Aborted, 1)
	if _, err := io.Copy(io.Discard, upstream); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the upstream's connection ended with %v", err)
	}
}

// An operator's close, and the end of a drain, reset both peers; also where one is
// still shaking hands.
func TestTLSIsClosed(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	send(t, client, "x")
	expect(t, upstream, "x")
	if !s.CloseSession(s.Sessions()[0].ID) {
		t.Error("it is not closed")
	}
	expectCut(t, client)
	expectCut(t, upstream)
	s.awaitEnd(stats.ByOperator, 1)

	mute := s.dial("l")
	client, upstream = s.ends()
	until(t, "both sessions are there", func() bool { return len(s.Sessions()) == 2 })
	if n := s.Shutdown(expired); n != 2 {
		t.Errorf("%d sessions are reset, want 2", n)
	}
	expectCut(t, mute)
	expectCut(t, client)
	expectCut(t, upstream)
}

// What a session has sent before its end still leaves while shaper drains, though the
// peer is slow to read it.
func TestTLSDrainsWhatIsLeft(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	client.CloseWrite()
	expectEOF(t, upstream)
	data := noise(8 << 20)
	go func() {
		upstream.Write(data)
		upstream.CloseWrite()
	}()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(client, got[:1<<20]); err != nil {
		t.Fatal(err)
	}
	drained := make(chan int)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		drained <- s.Shutdown(ctx)
	}()
	if _, err := io.ReadFull(client, got[1<<20:]); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other bytes arrive: %v", err)
	}
	expectEOF(t, client)
	if n := <-drained; n != 0 {
		t.Errorf("%d sessions are reset", n)
	}
}

// A session whose bytes have all been taken, by a tunnel whose peer does not read, is
// cut off with the drain and counted.
func TestTLSDrainEnds(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	client.tcp.SetReadBuffer(16 << 10)
	client.CloseWrite()
	expectEOF(t, upstream)
	go func() {
		upstream.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		upstream.Write(make([]byte, 64<<20))
	}()
	until(t, "bytes are on the way", func() bool { all := s.Sessions(); return len(all) == 1 && all[0].Downward > 1<<20 })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if n := s.Shutdown(ctx); n != 1 {
		t.Errorf("%d sessions are reset, want 1", n)
	}
	expectCut(t, client)
}

// New certificates hold for new sessions from the reload on, also where the policy's
// text is the same; open sessions go on.
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
	if _, err := s.Prepare(parse(t, text)); err == nil || !strings.Contains(err.Error(), "listener.l.tls.key: ") {
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

// The rules see a client of TLS as any other, and it waits for its slot after its
// handshake.
func TestTLSSlots(t *testing.T) {
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

// Without descriptors a handshake waits for them, within its time.
func TestTLSWithoutDescriptors(t *testing.T) {
	s := runSecure(t, fast, `connect_timeout = "1s"`)
	client, upstream := s.ends()
	restore := func() {}
	dialer := net.Dialer{Control: func(string, string, syscall.RawConn) error { restore = oneDescriptor(t); return nil }}
	dial := func() net.Conn {
		c, err := dialer.Dial("tcp", s.rig.addr("l"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	}
	second := tls.Client(dial(), s.trusting())
	until(t, "its session is there", func() bool { return len(s.Sessions()) == 2 })
	time.Sleep(100 * time.Millisecond) // it fails meanwhile, and goes on
	send(t, client, "others go on")
	expect(t, upstream, "others go on")
	restore()
	send(t, second, "late")
	expect(t, nextTLS(t, s.conns, serving(s.cert)), "late")

	third := dial()
	expectCut(t, third)
	restore()
	until(t, "it is counted", func() bool { return s.service("l").stats.Ended[stats.TLSFailed].Load() == 1 })
	if log := s.log.String(); !strings.Contains(log, "too many open files") {
		t.Errorf("logged is\n%s", log)
	}
}

// oneDescriptor lets the process have one more, until restored.
func oneDescriptor(t *testing.T) (restore func()) {
	t.Helper()
	free, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = uint64(free) + 1
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	restore = func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }
	t.Cleanup(restore)
	return restore
}

// A panic beneath a session ends that session, and leaves nothing behind.
func TestTLSPanic(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	s.service("l").terms.Load().secure.client.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { panic("in a handshake") }
	shake(s.rig, s.trusting())
	until(t, "it is counted", func() bool { return s.service("l").stats.Ended[stats.Panicked].Load() == 1 })
	send(t, client, "alive")
	expect(t, upstream, "alive")
	if !strings.Contains(s.log.String(), "in a handshake") {
		t.Error("the panic is not logged")
	}
}

// Very many sessions that end in every way, at any moment, leave nothing behind; that
// no descriptor and no goroutine is left is held by every test.
func TestTLSEndsInEveryWay(t *testing.T) {
	const sessions, at = 400, 16
	s := runSecure(t, "400MB/s", `return_class = "c"`)
	stop := make(chan struct{})
	var upstreams sync.WaitGroup
	upstreams.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case tcp := <-s.conns:
				upstreams.Go(func() { endInSomeWay(tls.Server(tcp, serving(s.cert)), tcp, n) })
			}
		}
	})
	var clients sync.WaitGroup
	for i := range at {
		clients.Go(func() {
			for n := i; n < sessions; n += at {
				c, err := net.Dial("tcp", s.rig.addr("l"))
				if errors.Is(err, syscall.ECONNRESET) { // closed by the operator even before connect has returned
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				endInSomeWay(tls.Client(c, s.trusting()), c.(*net.TCPConn), n/at+i)
				if n%50 == 7 {
					if all := s.Sessions(); len(all) > 0 {
						s.CloseSession(all[0].ID)
					}
				}
			}
		})
	}
	clients.Wait()
	until(t, "all sessions have ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sessions) == 0 && len(s.tunnels) == 0
	})
	close(stop)
	upstreams.Wait()
	for _, result := range []stats.Result{stats.OK, stats.ResetByPeer, stats.Aborted, stats.TLSFailed} {
		if s.service("l").stats.Ended[result].Load() == 0 {
			t.Errorf("none ended as %v", result)
		}
	}
	if n := s.service("l").stats.Ended[stats.Panicked].Load(); n > 0 {
		t.Errorf("%d sessions panicked", n)
	}
}

// endInSomeWay writes and reads a while, and then ends one of two connections.
func endInSomeWay(c *tls.Conn, tcp *net.TCPConn, n int) {
	defer tcp.Close()
	tcp.SetDeadline(time.Now().Add(500 * time.Millisecond))
	switch n % 7 {
	case 0: // before a word
		return
	case 1: // in the midst of a handshake
		tcp.Write([]byte("\x16\x03\x01\x02\x00\x01\x00"))
		reset(tcp)
		return
	}
	if c.Handshake() != nil {
		return
	}
	go c.Write(make([]byte, n%5*40_000+1))
	io.CopyN(io.Discard, c, int64(n%3*50_000))
	switch n % 7 {
	case 2:
		reset(tcp)
	case 3:
		tcp.Close()
	case 4:
		tcp.CloseWrite()
		io.Copy(io.Discard, c)
	default:
		c.CloseWrite()
		io.Copy(io.Discard, c)
	}
}

package conn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/stats"
	"shaper/tests/trial"
)

// A client whose handshake fails is reset, counted and logged.
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
		"it never speaks":      {func(r *rig) { expectReset(t, r.dial("l")) }, "i/o timeout"},
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
				t.Errorf("the log is\n%s", log)
			}
		})
	}
}

// shake does a handshake that must fail, at once or at the first read.
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

// A client that leaves before its handshake counts as no failure of TLS.
func TestTLSClientLeavesAtOnce(t *testing.T) {
	a := newAuthority(t)
	addr, _ := listen(t)
	r := run(t, forward(addr, fast, a.issue("server").terminating()))
	r.dial("l").Close()
	r.awaitEnd(stats.Aborted, 1)
	if log := r.log.String(); log != "" {
		t.Errorf("the log is\n%s", log)
	}
}

// If the handshake with an upstream fails, the log says why, and the session tries the next
// one.
func TestTLSOfUpstreamFails(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	good := a.issue("server")
	expired := a.issue("expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	misnamed := a.issue("misnamed", func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"other.example"}, nil })
	foreign := other.issue("foreign")
	ended := func(c *tls.Conn) { c.Handshake(); c.Close() }
	for name, c := range map[string]struct {
		serve func(tcpConn)
		said  string
	}{
		"a foreign authority": {func(c tcpConn) { ended(tls.Server(c, serving(foreign))) }, "signed by unknown authority"},
		"an expired one":      {func(c tcpConn) { ended(tls.Server(c, serving(expired))) }, "certificate has expired"},
		"another's":           {func(c tcpConn) { ended(tls.Server(c, serving(misnamed))) }, "doesn't contain any IP SANs"},
		"it is too old": {func(c tcpConn) {
			config := serving(good)
			config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
			ended(tls.Server(c, config))
		}, "protocol version"},
		"it speaks plain text": {func(c tcpConn) { io.WriteString(c, "220 ready\r\n"); io.Copy(io.Discard, c) }, "does not look like a TLS handshake"},
		"it is silent":         {func(c tcpConn) { io.Copy(io.Discard, c) }, "i/o timeout"},
		"it leaves":            {func(c tcpConn) { c.Close() }, "TLS handshake: "},
	} {
		t.Run(name, func(t *testing.T) {
			bad, conns := listen(t)
			r := run(t, forward(bad, fast, a.originating(""), `connect_timeout = "400ms"`))
			client := r.dial("l")
			c.serve(next(t, conns))
			expectReset(t, client)
			r.awaitEnd(stats.TLSFailed, 1)
			log := r.log.String()
			if !strings.Contains(log, "no upstream could be reached") || !strings.Contains(log, "dial "+bad+": TLS handshake: ") || !strings.Contains(log, c.said) {
				t.Errorf("the log is\n%s", log)
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
	expectReset(t, client)
	s.awaitEnd(stats.TLSFailed, 1)
	if log := s.log.String(); !strings.Contains(log, "certificate required") || !strings.Contains(log, "upstream "+s.addr) {
		t.Errorf("the log is\n%s", log)
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

// If a client leaves during the upstream's handshake, its session ends at once.
func TestTLSClientLeavesDuringHandshake(t *testing.T) {
	s := runSecure(t, fast)
	client := s.dialTLS("l", s.trusting())
	upstream := next(t, s.conns)
	upstream.Read(make([]byte, 1)) // the ClientHello has come
	reset(client.tcp)
	s.awaitEnd(stats.Aborted, 1)
	if _, err := io.Copy(io.Discard, upstream); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the upstream's connection ended with %v", err)
	}
}

// A handshake of an upstream that hangs for too long counts as not answered, though the client leaves. One that is young
// says nothing, nor does one that waits for descriptors of ours.
func TestTLSHandshakeOfImpatientClients(t *testing.T) {
	a := newAuthority(t)
	for _, c := range []struct {
		what          string
		long, without bool
		want          map[stats.Failure]uint64
	}{
		{"it hangs for long", true, false, map[stats.Failure]uint64{stats.NoAnswer: 1}},
		{"it is young", false, false, nil},
		{"it has not begun", true, true, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			hangs, conns := listen(t)
			r := run(t, across([]string{hangs}, `connect_timeout = "10s"`, a.originating("")))
			client := r.dial("l")
			next(t, conns).Read(make([]byte, 1)) // the ClientHello has come
			r.one().do(func(s *tcpSession) {
				if end := s.upstream.end.(*tlsEnd); c.without {
					s.upstream.end = &tlsEnd{Socket: end.Socket, tunnel: &tunnel{gone: make(chan struct{})}}
					end.tunnel.abort()
				}
				if c.long {
					s.dialling.clock.overdue = time.Now().Add(-1)
				}
			})
			reset(client)
			r.awaitEnd(stats.Aborted, 1)
			if got := r.failures(hangs); !maps.Equal(got, c.want) {
				t.Errorf("counted: %v, want %v", got, c.want)
			}
		})
	}
}

// A handshake without descriptors waits for them, within its time.
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
	trial.Await(t, "its session is there", func() bool { return len(s.Sessions()) == 2 })
	time.Sleep(100 * time.Millisecond) // it fails and retries meanwhile
	send(t, client, "others go on")
	expect(t, upstream, "others go on")
	restore()
	send(t, second, "late")
	expect(t, nextTLS(t, s.conns, serving(s.cert)), "late")

	third := dial()
	expectReset(t, third)
	restore()
	trial.Await(t, "it is counted", func() bool { return s.service("l").stats.Ended[stats.TLSFailed].Load() == 1 })
	if log := s.log.String(); !strings.Contains(log, "too many open files") {
		t.Errorf("the log is\n%s", log)
	}
}

// oneDescriptor lets the process open one more descriptor, until restored.
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

// A panic in a tunnel ends its session, and leaves nothing behind.
func TestTLSPanic(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	s.service("l").terms.Load().secure.client.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { panic("in a handshake") }
	shake(s.rig, s.trusting())
	trial.Await(t, "it is counted", func() bool { return s.service("l").stats.Ended[stats.Panicked].Load() == 1 })
	send(t, client, "alive")
	expect(t, upstream, "alive")
	if !strings.Contains(s.log.String(), "in a handshake") {
		t.Error("the panic is not logged")
	}
}

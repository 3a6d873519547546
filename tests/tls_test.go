package tests

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/tests/trial"
)

// authority signs certificates, and keeps them in PEM files in a directory.
type authority struct {
	t    *testing.T
	dir  string
	file string // PEM file of its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	dir, err := os.MkdirTemp(binDir, "")
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, dir: dir, file: filepath.Join(dir, "ca.pem"), pool: x509.NewCertPool()}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign("ca", template)
	a.pool.AddCert(a.cert)
	return a
}

// sign makes a key, signs a certificate for it, and writes NAME.pem and NAME.key. The first
// certificate signs itself.
func (a *authority) sign(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for kind, data := range map[string][]byte{
		"pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	} {
		if err := os.WriteFile(a.path(name, kind), data, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// path returns the path of a file: ca.pem, NAME.pem, NAME.key.
func (a *authority) path(name, kind string) string { return filepath.Join(a.dir, name+"."+kind) }

// issue signs a certificate with a common name, for a host or IP address, until a time (zero: for
// an hour). It also names the files.
func (a *authority) issue(name, host string, until time.Time) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{host}, NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ip := net.ParseIP(host); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	a.sign(name, template)
	pair, err := tls.LoadX509KeyPair(a.path(name, "pem"), a.path(name, "key"))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// tlsPolicy returns a policy with a listener "a". Lines are added to the listener's section.
func tlsPolicy(upstream string, lines ...string) string {
	return fmt.Sprintf("[class.a]\nrate = \"8gbit\"\n[listener.a]\nlisten = \"127.0.0.1:0\"\nupstream = %q\nclass = \"a\"\n%s\n", upstream, strings.Join(lines, "\n"))
}

// terminating returns the key tls of a listener, with the certificate of a name.
func (a *authority) terminating(name string) string {
	return fmt.Sprintf("tls = { cert = %q, key = %q }", a.path(name, "pem"), a.path(name, "key"))
}

// originating returns the key upstream_tls of a listener, with the client certificate of a name, or
// without one if client is "".
func (a *authority) originating(client string) string {
	if client == "" {
		return fmt.Sprintf("upstream_tls = { ca = %q }", a.file)
	}
	return fmt.Sprintf("upstream_tls = { ca = %q, cert = %q, key = %q }", a.file, a.path(client, "pem"), a.path(client, "key"))
}

// curl runs curl, and returns the page that it fetches.
func curl(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(tool(t, "curl", "curl"), append([]string{"-sS", "--max-time", "10"}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return string(out)
}

// curl speaks TLS with shaper, and the server behind it plain HTTP.
func TestCurlToTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("shaper", "127.0.0.1", time.Time{})
	page := strings.Repeat("a page\n", 100_000)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %d\n%s", r.Method, r.URL.Path, len(body), page)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer server.Close()
	p := start(t, raced(t), tlsPolicy(l.Addr().String(), a.terminating("shaper"), `return_class = "a"`))
	upload := filepath.Join(a.dir, "upload")
	if err := os.WriteFile(upload, noise(1, 3_000_000), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := p.addr("a")
	for _, version := range []string{"1.2", "1.3"} {
		got := curl(t, "--cacert", a.file, "--tls-max", version, "--tlsv"+version, "--data-binary", "@"+upload, "https://"+addr+"/some/path")
		if got != "POST /some/path 3000000\n"+page {
			t.Errorf("TLS %s: curl gets another page: %.100q", version, got)
		}
	}
	trial.Await(t, "the sessions have ended", func() bool { return p.listener("a").Ended["ok"] == 2 })
}

// curl speaks plain HTTP with shaper, and OpenSSL's server requires a client certificate from
// shaper.
func TestCurlToTLSUpstream(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", "127.0.0.1", time.Time{})
	a.issue("we", "we.example", time.Time{})
	upstream := net.JoinHostPort("127.0.0.1", freePort(t))
	server := exec.Command(tool(t, "openssl", "openssl"), "s_server", "-accept", upstream, "-cert", a.path("server", "pem"), "-key", a.path("server", "key"),
		"-CAfile", a.file, "-Verify", "1", "-verify_return_error", "-www")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { server.Process.Kill(); server.Wait() }()
	trial.Await(t, "openssl listens", func() bool {
		c, err := net.Dial("tcp", upstream)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	p := start(t, raced(t), tlsPolicy(upstream, a.originating("we")))
	got := curl(t, "http://"+p.addr("a")+"/")
	if !strings.Contains(got, "Client certificate") || !strings.Contains(got, "CN = we") && !strings.Contains(got, "CN=we") {
		t.Errorf("the page does not show the client certificate: %.2000s", got)
	}

	p.write(tlsPolicy(upstream, a.originating("")))
	p.must("reload")
	if err := exec.Command("curl", "-s", "--max-time", "10", "http://"+p.addr("a")+"/").Run(); err == nil {
		t.Error("the server accepts shaper without a client certificate")
	}
	trial.Await(t, "the session is counted as tls_failed", func() bool { return p.listener("a").Ended["tls_failed"] == 1 })
	trial.Await(t, "the log says why", func() bool { return strings.Contains(p.log.String(), "certificate required") })
}

// large is the number of bytes in each direction of TestTLSTransfer.
const large = 100_000_000

// 100 MB in each direction, through TLS on both sides, arrive unchanged.
func TestTLSTransfer(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("shaper", "localhost", time.Time{})
	pair := a.issue("server", "127.0.0.1", time.Time{})
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	up, down := newStream(1), newStream(2)
	arrived := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		sent := make(chan struct{})
		go func() { down.send(c); close(sent) }()
		arrived <- hashOf(c)
		<-sent
	}()
	p := start(t, plain(), tlsPolicy(l.Addr().String(), a.terminating("shaper"), a.originating(""), `return_class = "a"`))
	c, err := tls.Dial("tcp", p.addr("a"), &tls.Config{RootCAs: a.pool, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	go up.send(c)
	if got := hashOf(c); !bytes.Equal(got, down.sum()) {
		t.Error("the client gets other bytes than the upstream sent")
	}
	if got := <-arrived; !bytes.Equal(got, up.sum()) {
		t.Error("the upstream gets other bytes than the client sent")
	}
	t.Logf("2 x %d MB in %v, with %v of shaper's processor time", large/1_000_000, time.Since(began).Round(time.Millisecond), p.busy().Round(time.Millisecond))
	trial.Await(t, "the session has ended", func() bool { return p.listener("a").Ended["ok"] == 1 })
}

// stream repeats a piece of noise up to large bytes.
type stream struct{ piece []byte }

func newStream(seed uint64) stream { return stream{noise(seed, 1_000_003)} }

// write writes the whole stream.
func (s stream) write(w io.Writer) {
	for remaining := large; remaining > 0; remaining -= len(s.piece) {
		if _, err := w.Write(s.piece[:min(remaining, len(s.piece))]); err != nil {
			return
		}
	}
}

func (s stream) send(c net.Conn) {
	s.write(c)
	c.(*tls.Conn).CloseWrite()
}

func (s stream) sum() []byte {
	h := sha256.New()
	s.write(h)
	return h.Sum(nil)
}

// hashOf returns the SHA-256 of all bytes before a clean end, or nil if the end is not clean.
func hashOf(r io.Reader) []byte {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return nil
	}
	return h.Sum(nil)
}

// A reload reads new certificates even if the policy is the same. Open sessions go on. A bad key
// file makes the reload fail, and the old certificate stays.
func TestTLSReload(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("shaper", "localhost", time.Time{})
	p := start(t, raced(t), tlsPolicy("echo:", a.terminating("shaper")))
	addr := p.addr("a")
	open := func() *tls.Conn {
		c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: a.pool, ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	}
	serial := func(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].SerialNumber.String() }
	echoes := func(c *tls.Conn) {
		t.Helper()
		c.Write([]byte("echo"))
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Error(err)
		}
	}
	first := open()
	echoes(first)
	if out := p.must("sessions"); !strings.Contains(out, "client 1.3") {
		t.Errorf("sessions does not show client 1.3:\n%s", out)
	}
	a.issue("shaper", "localhost", time.Time{})
	p.must("reload")
	second := open()
	echoes(second)
	echoes(first)
	if serial(first) == serial(second) {
		t.Error("after the reload, the certificate is still the old one")
	}

	if err := os.WriteFile(a.path("shaper", "key"), []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := p.cli("reload")
	_, checked, checkCode := p.cli("check")
	want := fmt.Sprintf("listener.a.tls.key: %s: tls: failed to find any PEM data in key input", a.path("shaper", "key"))
	if code != 1 || !strings.Contains(stderr, want) || checkCode != 65 || !strings.Contains(checked, want) {
		t.Errorf("a bad key: reload: exit %d: %s\ncheck: exit %d: %s", code, stderr, checkCode, checked)
	}
	echoes(open())
	echoes(first)
}

// Shaper refuses upstreams whose certificates it cannot verify. The log says why, and each is
// counted as tls_failed.
func TestTLSUpstreamIsVerified(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	for _, c := range []struct {
		name, said string
		pair       tls.Certificate
	}{
		{"foreign", "certificate signed by unknown authority", other.issue("foreign", "127.0.0.1", time.Time{})},
		{"expired", "certificate has expired or is not yet valid", a.issue("expired", "127.0.0.1", time.Now().Add(-time.Hour))},
		{"misnamed", "certificate is valid for 127.0.0.9, not 127.0.0.1", a.issue("misnamed", "127.0.0.9", time.Time{})},
	} {
		upstream := serve(t, func(conn *net.TCPConn) {
			s := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{c.pair}})
			s.Handshake()
			io.Copy(io.Discard, s)
		})
		p := start(t, plain(), tlsPolicy(upstream, a.originating("")))
		client := dial(t, "", p.addr("a"))
		client.SetDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, client); err == nil {
			t.Errorf("%s: the session ends cleanly, want a reset", c.name)
		}
		trial.Await(t, c.name+" is counted as tls_failed", func() bool {
			return p.metric(`shaper_sessions_total{listener="a",result="tls_failed"}`) == 1
		})
		if log := p.log.String(); !strings.Contains(log, "no upstream could be reached") || !strings.Contains(log, c.said) {
			t.Errorf("%s: the log does not say why:\n%s", c.name, log)
		}
	}
}

// idleTLS is the most memory that an idle session with TLS on one side may take. It takes some 28
// KB after small messages. After large ones it takes up to 16 KiB more, because crypto/tls keeps
// its buffer.
const idleTLS = 64 << 10

func TestTLSIdleMemory(t *testing.T) {
	const sessions = 400
	a := newAuthority(t)
	a.issue("shaper", "localhost", time.Time{})
	upstream := serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
	for _, message := range []int{200, 20_000} {
		p := start(t, plain(), tlsPolicy(upstream, a.terminating("shaper")))
		closeAll := a.openSessions(p.addr("a"), message, 80) // allocations of the first sessions do not count
		before := p.memory("VmRSS")
		closeMore := a.openSessions(p.addr("a"), message, sessions)
		each := (p.memory("VmRSS") - before) / sessions
		t.Logf("an idle session takes %[2]d bytes after messages of %[1]d bytes", message, each)
		if each > idleTLS {
			t.Errorf("an idle session takes more than %d bytes", idleTLS)
		}
		closeAll()
		closeMore()
	}
}

// openSessions opens sessions, has a message echoed through each, and leaves them open.
func (a *authority) openSessions(addr string, message, sessions int) (closeAll func()) {
	conns := make(chan net.Conn, sessions)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range sessions / 8 {
				c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: a.pool, ServerName: "localhost"})
				if err != nil {
					a.t.Error(err)
					return
				}
				conns <- c
				data := make([]byte, message)
				c.Write(data)
				if _, err := io.ReadFull(c, data); err != nil {
					a.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(conns)
	return func() {
		for c := range conns {
			c.Close()
		}
	}
}

// curl reaches Stripe's mock in two ways. One goes through two shapers: the near one begins TLS
// with a client certificate, and the far one ends it. The other goes through one shaper to the
// mock's own TLS.
func TestStripeMockThroughTLS(t *testing.T) {
	t.Parallel()
	plainMock, secureMock := stripeMock(t)
	a := newAuthority(t)
	a.issue("far", "127.0.0.1", time.Time{})
	a.issue("near", "near.example", time.Time{})
	far := start(t, plain(), tlsPolicy(plainMock, fmt.Sprintf("tls = { cert = %q, key = %q, client_ca = %q }", a.path("far", "pem"), a.path("far", "key"), a.file)))
	near := start(t, plain(), tlsPolicy(far.addr("a"), a.originating("near")))
	// The mock's certificate has no name to verify.
	direct := start(t, plain(), tlsPolicy(secureMock, "upstream_tls = { insecure = true }"))
	for _, addr := range []string{near.addr("a"), direct.addr("a")} {
		got := curl(t, "-H", "Authorization: Bearer sk_test_123", "-d", "amount=2000", "-d", "currency=usd", "-d", "source=tok_visa", "http://"+addr+"/v1/charges")
		if !strings.Contains(got, `"object": "charge"`) {
			t.Errorf("curl gets no charge from %s: %.500s", addr, got)
		}
	}
}

const stripeModule = "github.com/stripe/stripe-mock@v0.203.0"

// stripeMock runs stripe-mock until the test ends, and returns its addresses for HTTP and HTTPS.
func stripeMock(t *testing.T) (plain, secure string) {
	t.Helper()
	install := exec.Command("go", "install", stripeModule)
	install.Env = append(os.Environ(), "GOBIN="+binDir, "GOFLAGS=-mod=mod -ldflags=-w")
	install.Dir = binDir
	if out, err := install.CombinedOutput(); err != nil {
		skipUnlessCI(t, "%s cannot be built: %v\n%s", stripeModule, err, out)
	}
	log := new(trial.Log)
	cmd := exec.Command(filepath.Join(binDir, "stripe-mock"), "-http-addr", "127.0.0.1:", "-https-addr", "127.0.0.1:")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	at := func(scheme string) (addr string) {
		trial.Await(t, "stripe-mock listens", func() bool {
			if m := regexp.MustCompile(`Listening for ` + scheme + ` at address: (\S+)`).FindStringSubmatch(log.String()); m != nil {
				addr = m[1]
			}
			return addr != ""
		})
		return addr
	}
	return at("HTTP"), at("HTTPS")
}

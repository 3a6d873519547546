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
)

// authority signs certificates, in PEM files of a directory.
type authority struct {
	t    *testing.T
	dir  string
	file string // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	dir, err := os.MkdirTemp(bins, "")
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, dir: dir, file: filepath.Join(dir, "ca.pem"), pool: x509.NewCertPool()}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign("ca", template)
	a.pool.AddCert(a.cert)
	return a
}

// sign writes NAME.pem and NAME.key.
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

// issue signs a certificate of a name, for a host and until a time.
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

// tlsPolicy is a policy of listener "a" with more lines in its section.
func tlsPolicy(upstream string, lines ...string) string {
	return fmt.Sprintf("[class.a]\nrate = \"8gbit\"\n[listener.a]\nlisten = \"127.0.0.1:0\"\nupstream = %q\nclass = \"a\"\n%s\n", upstream, strings.Join(lines, "\n"))
}

func (a *authority) terminating(name string) string {
	return fmt.Sprintf("tls = { cert = %q, key = %q }", a.path(name, "pem"), a.path(name, "key"))
}

func (a *authority) originating(client string) string {
	if client == "" {
		return fmt.Sprintf("upstream_tls = { ca = %q }", a.file)
	}
	return fmt.Sprintf("upstream_tls = { ca = %q, cert = %q, key = %q }", a.file, a.path(client, "pem"), a.path(client, "key"))
}

// curl returns what a page holds.
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

// curl speaks TLS with shaper, and the server behind it does not.
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
			t.Errorf("TLS %s: curl gets %.100q", version, got)
		}
	}
	waitFor(t, "the sessions have ended", func() bool { return p.listener("a").Ended["ok"] == 2 })
}

// curl speaks plain HTTP with shaper, and OpenSSL's server wants a certificate of ours.
func TestCurlToTLSUpstream(t *testing.T) {
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
	waitFor(t, "openssl listens", func() bool {
		c, err := net.Dial("tcp", upstream)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	p := start(t, raced(t), tlsPolicy(upstream, a.originating("we")))
	got := curl(t, "http://"+p.addr("a")+"/")
	if !strings.Contains(got, "Client certificate") || !strings.Contains(got, "CN = we") && !strings.Contains(got, "CN=we") {
		t.Errorf("curl gets %.2000s", got)
	}

	p.write(tlsPolicy(upstream, a.originating("")))
	p.must("reload")
	if err := exec.Command("curl", "-s", "--max-time", "10", "http://"+p.addr("a")+"/").Run(); err == nil {
		t.Error("the server takes us without a certificate")
	}
	waitFor(t, "it is counted", func() bool { return p.listener("a").Ended["tls_failed"] == 1 })
	if log := p.log.String(); !strings.Contains(log, "certificate required") {
		t.Errorf("the log does not say why:\n%s", log)
	}
}

// large is how much goes each way.
const large = 100_000_000

// 100 MB each way through TLS on both sides arrive as they were sent.
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
		t.Error("the client gets other bytes")
	}
	if got := <-arrived; !bytes.Equal(got, up.sum()) {
		t.Error("the upstream gets other bytes")
	}
	t.Logf("2 x %d MB in %v, %v of shaper's processor", large/1_000_000, time.Since(began).Round(time.Millisecond), p.busy().Round(time.Millisecond))
	waitFor(t, "the session has ended", func() bool { return p.listener("a").Ended["ok"] == 1 })
}

// stream is pieces of noise, again and again.
type stream struct{ piece []byte }

func newStream(seed uint64) stream { return stream{noise(seed, 1_000_003)} }

// write writes the whole stream.
func (s stream) write(w io.Writer) {
	for left := large; left > 0; left -= len(s.piece) {
		if _, err := w.Write(s.piece[:min(left, len(s.piece))]); err != nil {
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

// hashOf returns the hash of all that comes before a clean end; nil where there is none.
func hashOf(r io.Reader) []byte {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return nil
	}
	return h.Sum(nil)
}

// A reload takes new certificates, though the policy is the same, and open sessions go on.
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
		t.Errorf("sessions shows\n%s", out)
	}
	a.issue("shaper", "localhost", time.Time{})
	p.must("reload")
	second := open()
	echoes(second)
	echoes(first)
	if serial(first) == serial(second) {
		t.Error("the certificate is the old one")
	}

	if err := os.WriteFile(a.path("shaper", "key"), []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := p.cli("reload")
	_, checked, checkCode := p.cli("check")
	want := fmt.Sprintf("listener.a.tls.key: %s: tls: failed to find any PEM data in key input", a.path("shaper", "key"))
	if code != 1 || !strings.Contains(stderr, want) || checkCode != 65 || !strings.Contains(checked, want) {
		t.Errorf("a bad key: reload says %d %s\ncheck says %d %s", code, stderr, checkCode, checked)
	}
	echoes(open())
	echoes(first)
}

// Upstreams that are not who they have to be are refused; the log says why, and each
// is counted.
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
			t.Errorf("%s: the end looks clean", c.name)
		}
		if n := p.metric(`shaper_sessions_total{listener="a",result="tls_failed"}`); n != 1 {
			t.Errorf("%s: %v are counted", c.name, n)
		}
		if log := p.log.String(); !strings.Contains(log, "no upstream could be reached") || !strings.Contains(log, c.said) {
			t.Errorf("%s: the log does not say why:\n%s", c.name, log)
		}
	}
}

// idleTLS is how much memory an idle session may take that has TLS on one side: some
// 28 KB where all that it has carried were small messages, and up to 16 KiB more where
// it has received large ones, for which crypto/tls keeps its buffer.
const idleTLS = 64 << 10

func TestTLSIdleMemory(t *testing.T) {
	const sessions = 400
	a := newAuthority(t)
	a.issue("shaper", "localhost", time.Time{})
	upstream := serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
	for _, message := range []int{200, 20_000} {
		p := start(t, plain(), tlsPolicy(upstream, a.terminating("shaper")))
		closeAll := a.exchange(p.addr("a"), message, 80) // what the first ones take is not theirs
		before := p.memory("VmRSS")
		closeMore := a.exchange(p.addr("a"), message, sessions)
		each := (p.memory("VmRSS") - before) / sessions
		t.Logf("an idle session that has carried %d bytes takes %d", message, each)
		if each > idleTLS {
			t.Errorf("that is more than %d", idleTLS)
		}
		closeAll()
		closeMore()
	}
}

// exchange opens sessions, sends a message through each and back, and leaves them open.
func (a *authority) exchange(addr string, message, sessions int) (closeAll func()) {
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

// Stripe's mock is behind two shapers with TLS between them: the one that the client
// knows begins it, with a certificate of its own, and the other ends it. And it is
// behind one, over its own TLS.
func TestStripeMockThroughTLS(t *testing.T) {
	t.Parallel()
	plainMock, secureMock := stripeMock(t)
	a := newAuthority(t)
	a.issue("far", "127.0.0.1", time.Time{})
	a.issue("near", "near.example", time.Time{})
	far := start(t, plain(), tlsPolicy(plainMock, fmt.Sprintf("tls = { cert = %q, key = %q, client_ca = %q }", a.path("far", "pem"), a.path("far", "key"), a.file)))
	near := start(t, plain(), tlsPolicy(far.addr("a"), a.originating("near")))
	// Its certificate has no name that could be verified.
	direct := start(t, plain(), tlsPolicy(secureMock, "upstream_tls = { insecure = true }"))
	for _, addr := range []string{near.addr("a"), direct.addr("a")} {
		got := curl(t, "-H", "Authorization: Bearer sk_test_123", "-d", "amount=2000", "-d", "currency=usd", "-d", "source=tok_visa", "http://"+addr+"/v1/charges")
		if !strings.Contains(got, `"object": "charge"`) {
			t.Errorf("curl gets %.500s", got)
		}
	}
}

const stripeModule = "github.com/stripe/stripe-mock@v0.203.0"

// stripeMock runs stripe-mock until the test ends, and returns where it speaks HTTP and
// HTTPS.
func stripeMock(t *testing.T) (plain, secure string) {
	t.Helper()
	install := exec.Command("go", "install", stripeModule)
	install.Env = append(os.Environ(), "GOBIN="+bins, "GOFLAGS=-mod=mod")
	install.Dir = bins
	if out, err := install.CombinedOutput(); err != nil {
		missing(t, "%s cannot be built: %v\n%s", stripeModule, err, out)
	}
	log := &logged{}
	cmd := exec.Command(filepath.Join(bins, "stripe-mock"), "-http-addr", "127.0.0.1:", "-https-addr", "127.0.0.1:")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	at := func(scheme string) (addr string) {
		waitFor(t, "stripe-mock listens", func() bool {
			if m := regexp.MustCompile(`Listening for ` + scheme + ` at address: (\S+)`).FindStringSubmatch(log.String()); m != nil {
				addr = m[1]
			}
			return addr != ""
		})
		return addr
	}
	return at("HTTP"), at("HTTPS")
}

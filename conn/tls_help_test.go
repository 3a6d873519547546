package conn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates for a test, in PEM files of a directory.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.file, _, a.cert, a.key = a.sign("ca", template, nil, nil)
	a.pool.AddCert(a.cert)
	return a
}

// sign writes NAME.pem and NAME.key. With a nil parent, the certificate signs itself.
func (a *authority) sign(name string, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (certFile, keyFile string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	a.write(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
	return certFile, keyFile, cert, key
}

func (a *authority) write(path string, data []byte) {
	a.t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issued is a certificate that an authority has signed, and its key.
type issued struct {
	cert, key string // files
	pair      tls.Certificate
}

// issue signs a certificate for localhost and 127.0.0.1, changed by alter.
func (a *authority) issue(name string, alter ...func(*x509.Certificate)) issued {
	a.t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, do := range alter {
		do(template)
	}
	certFile, keyFile, _, _ := a.sign(name, template, a.cert, a.key)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		a.t.Fatal(err)
	}
	return issued{certFile, keyFile, pair}
}

// terminating returns the line of a listener's section for TLS with its clients.
func (i issued) terminating() string {
	return fmt.Sprintf("tls = { cert = %q, key = %q }", i.cert, i.key)
}

// originating returns the line for TLS with its upstreams.
func (a *authority) originating(more string) string {
	return fmt.Sprintf("upstream_tls = { ca = %q%s }", a.file, more)
}

// serving returns the configuration of a server with a certificate.
func serving(i issued) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{i.pair}} }

// trusting returns the configuration of a client that trusts the authority.
func (a *authority) trusting() *tls.Config {
	return &tls.Config{RootCAs: a.pool, ServerName: "localhost"}
}

// secured is a TLS connection, and the TCP connection beneath it.
type secured struct {
	*tls.Conn
	tcp tcpConn
}

// dialTLS connects to a listener, and does the handshake.
func (r *rig) dialTLS(listener string, config *tls.Config) secured {
	r.t.Helper()
	tcp := r.dial(listener)
	c := tls.Client(tcp, config)
	if err := c.Handshake(); err != nil {
		r.t.Fatal(err)
	}
	return secured{c, tcp}
}

// nextTLS is next for an upstream with TLS.
func nextTLS(t testing.TB, conns <-chan tcpConn, config *tls.Config) secured {
	t.Helper()
	tcp := next(t, conns)
	c := tls.Server(tcp, config)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return secured{c, tcp}
}

// secure is a rig of listener "l" with TLS on both sides.
type secure struct {
	*rig
	*authority
	cert  issued
	conns <-chan tcpConn
	addr  string // of the upstream
}

func runSecure(t testing.TB, rate string, more ...string) *secure {
	t.Helper()
	a := newAuthority(t)
	s := &secure{authority: a, cert: a.issue("server")}
	s.addr, s.conns = listen(t)
	s.rig = run(t, forward(s.addr, rate, append(more, s.cert.terminating(), a.originating(""))...))
	return s
}

// ends returns both peers of a session.
func (s *secure) ends() (client, upstream secured) {
	s.rig.t.Helper()
	client = s.dialTLS("l", s.trusting())
	return client, nextTLS(s.rig.t, s.conns, serving(s.cert))
}

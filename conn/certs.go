package conn

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
)

// terms are a listener of the policy, and what its certificates and keys were when
// the policy came into force. They do not change.
type terms struct {
	policy.Listener
	secure security
}

// security is the TLS of a listener. The zero security is none.
type security struct {
	client   *tls.Config            // where that of clients ends here
	upstream map[string]*tls.Config // by upstream, where it begins here
}

// ReadTLS reads the certificates and keys that a policy names, as Prepare does, and
// keeps nothing. Both results join an error for each file, which begins with its key:
// warnings are about what can be used all the same.
func ReadTLS(p *policy.Policy) (warnings, err error) {
	var f tlsFiles
	for i := range p.Listeners {
		f.read(&p.Listeners[i])
	}
	return errors.Join(f.warnings...), errors.Join(f.errs...)
}

// tlsFiles reads the files of listeners, and collects what is wrong with them.
type tlsFiles struct {
	section        string // the listener that is being read
	errs, warnings []error
}

func (f *tlsFiles) wrong(key string, err error) {
	f.errs = append(f.errs, fmt.Errorf("%s.%s: %w", f.section, key, err))
}

// read returns the TLS of a listener, of no use where something was wrong.
func (f *tlsFiles) read(l *policy.Listener) (s security) {
	f.section = "listener." + l.Name
	if l.TLS != nil {
		s.client = f.server(l.TLS)
	}
	if l.UpstreamTLS != nil {
		s.upstream = f.client(l)
	}
	return s
}

// readTLS reads what the listeners of a change need.
func (c *Change) readTLS() []error {
	c.secure = map[string]security{}
	var f tlsFiles
	for i := range c.policy.Listeners {
		if l := &c.policy.Listeners[i]; l.TLS != nil || l.UpstreamTLS != nil {
			c.secure[l.Name] = f.read(l)
		}
	}
	for _, w := range f.warnings {
		c.server.log.Warn(w.Error())
	}
	return f.errs
}

// minTLS is the oldest version that is spoken: RFC 8996 forbids what is older.
const minTLS = tls.VersionTLS12

func (f *tlsFiles) server(c *policy.ServerTLS) *tls.Config {
	config := &tls.Config{MinVersion: minTLS, Certificates: []tls.Certificate{f.pair("tls", c.Cert, c.Key)}}
	if c.ClientCA != "" {
		config.ClientCAs, config.ClientAuth = f.authorities("tls.client_ca", c.ClientCA), tls.RequireAndVerifyClientCert
	}
	return config
}

// client returns what each upstream of a listener is met with: they differ in the
// name that their certificates have to be for.
func (f *tlsFiles) client(l *policy.Listener) map[string]*tls.Config {
	c := l.UpstreamTLS
	config := &tls.Config{MinVersion: minTLS, InsecureSkipVerify: c.Insecure, NextProtos: alpn(l.Protocol)}
	if c.CA != "" {
		config.RootCAs = f.authorities("upstream_tls.ca", c.CA)
	}
	if c.Cert != "" {
		pair := f.pair("upstream_tls", c.Cert, c.Key)
		// It is sent whatever authorities the upstream says that it knows, so that the
		// upstream can tell what is wrong with it.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	configs := map[string]*tls.Config{}
	for _, upstream := range l.Upstream {
		one := config.Clone()
		if one.ServerName = c.ServerName; one.ServerName == "" {
			host, _, _ := net.SplitHostPort(upstream)
			one.ServerName, _, _ = strings.Cut(strings.TrimSuffix(host, "."), "%")
		}
		configs[upstream] = one
	}
	return configs
}

// alpn returns what is offered by RFC 7301 for a protocol. What is not HTTP has no
// name there; plain tcp may be either, and a server that has none takes no offence.
func alpn(p policy.Protocol) []string {
	switch p {
	case policy.TCP, policy.HTTP:
		return []string{"http/1.1"}
	}
	return nil
}

// pair reads a certificate and its key.
func (f *tlsFiles) pair(key, certPath, keyPath string) (pair tls.Certificate) {
	certPEM, err := readPEM(certPath)
	var chain []*x509.Certificate
	if err == nil {
		chain, err = certificatesIn(certPath, certPEM)
	}
	if err != nil {
		f.wrong(key+".cert", err)
	}
	keyPEM, keyErr := readPEM(keyPath)
	if keyErr != nil {
		f.wrong(key+".key", keyErr)
	}
	if err != nil || keyErr != nil {
		return pair
	}
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		if isEncrypted(keyPEM) {
			err = fmt.Errorf("it is encrypted, and shaper has no password; \"openssl pkey -in %s\" prints it decrypted", keyPath)
		}
		f.wrong(key+".key", fmt.Errorf("%s: %w", keyPath, err))
	}
	if problem := untimely(chain[0], time.Now()); problem != "" {
		f.warnings = append(f.warnings, fmt.Errorf("%s.%s.cert: %w", f.section, key, fmt.Errorf("%s: %s", certPath, problem)))
	}
	return pair
}

// isEncrypted reports whether a private key has a password: that of PKCS #8 (RFC 5958), or
// the older one of RFC 1421.
func isEncrypted(keyPEM []byte) bool {
	for block, rest := pem.Decode(keyPEM); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}

// untimely says why a certificate is not valid at a time; "" if it is.
func untimely(c *x509.Certificate, now time.Time) string {
	switch {
	case now.After(c.NotAfter):
		return "the certificate has expired, on " + c.NotAfter.Format(time.RFC3339)
	case now.Before(c.NotBefore):
		return "the certificate is not valid before " + c.NotBefore.Format(time.RFC3339)
	}
	return ""
}

// authorities reads certificates of authorities.
func (f *tlsFiles) authorities(key, path string) *x509.CertPool {
	pool := x509.NewCertPool()
	data, err := readPEM(path)
	var all []*x509.Certificate
	if err == nil {
		all, err = certificatesIn(path, data)
	}
	if err != nil {
		f.wrong(key, err)
	}
	for _, c := range all {
		pool.AddCert(c)
	}
	return pool
}

// certificatesIn returns the certificates of a PEM file, at least one.
func certificatesIn(path string, data []byte) (all []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", path, len(all)+1, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: there is no certificate in it", path)
	}
	return all, nil
}

// maxPEM bounds a file of certificates; all authorities of a system take 256 KiB.
const maxPEM = 4 << 20

// readPEM reads a file, and does not wait for one that is a pipe.
func readPEM(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a regular file")})
	}
	data, err := io.ReadAll(io.LimitReader(file, maxPEM+1))
	if err == nil && len(data) > maxPEM {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("it is larger than 4MiB")}
	}
	return data, err
}

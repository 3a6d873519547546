package conn

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"shaper/entry"
	"shaper/policy"
	"shaper/sock"
	"shaper/upstream"
)

// terms are a listener of the policy, with the certificates, keys and users that its files and
// names stood for when the policy came into force. They never change.
type terms struct {
	policy.Listener
	secure security
	access sock.Access   // of unix sockets
	leads  *upstream.Set // the upstreams that it leads to
	// relayed is the listener for the datagrams of SOCKS clients; nil: it relays none.
	relayed *policy.Listener
}

// datagrams returns the listener for datagrams: that for SOCKS clients, or the listener itself.
func (c *terms) datagrams() *policy.Listener {
	if c.relayed != nil {
		return c.relayed
	}
	return &c.Listener
}

// admits reports whether a client of an entry may go somewhere new: nobody has to log in, or the user
// who has logged in by a file still may.
func (c *terms) admits(user string, by *entry.Users) bool {
	return c.secure.users == nil || c.secure.users.Keeps(user, by)
}

// security is the TLS of a listener, and who may log in. The zero security is none.
type security struct {
	client   *tls.Config            // with clients; nil: none
	upstream map[string]*tls.Config // with upstreams, by their name in the policy; nil: none
	users    *entry.Users           // of an entry; nil: nobody has to log in
}

// Files are the certificates, keys and users that a policy names, as ReadFiles has read them. They never
// change.
type Files struct {
	secure         map[string]security // by name of the listener
	errs, warnings []error
}

// ReadFiles reads the certificates, keys and users that a policy names. It touches nothing else, and may
// take long: a file system may not answer.
func ReadFiles(p *policy.Policy) Files {
	secure := map[string]security{}
	var f tlsFiles
	for i := range p.Listeners {
		if l := &p.Listeners[i]; l.TLS != nil || l.UpstreamTLS != nil || l.Users != "" {
			secure[l.Name] = f.read(l)
		}
	}
	return Files{secure, f.errs, f.warnings}
}

// Check says what is wrong with the files. Both results join an error for each bad file, which begins
// with its policy key. A file in warnings can be used all the same.
func (f *Files) Check() (warnings, err error) {
	return errors.Join(f.warnings...), errors.Join(f.errs...)
}

// ReadClientTLS returns the TLS of a client as section.key of the policy describes it, and writes to
// copied what its files hold. Its errors are like those of Files.Check.
func ReadClientTLS(section, key string, c *policy.ClientTLS, copied io.Writer) (config *tls.Config, warnings, err error) {
	f := tlsFiles{section: section, copied: copied}
	config = f.config(key, c)
	return config, errors.Join(f.warnings...), errors.Join(f.errs...)
}

// tlsFiles reads the files of listeners, and collects their errors.
type tlsFiles struct {
	section        string    // of the present listener, "listener.NAME"
	copied         io.Writer // gets what the files hold; nil: nobody wants it
	errs, warnings []error
}

// contents returns what a function reads from a file.
func (f *tlsFiles) contents(read func(path string) ([]byte, error), path string) ([]byte, error) {
	data, err := read(path)
	if f.copied != nil {
		f.copied.Write(data)
	}
	return data, err
}

// wrong adds the error of the file that key names.
func (f *tlsFiles) wrong(key string, err error) {
	f.errs = append(f.errs, fmt.Errorf("%s.%s: %w", f.section, key, err))
}

// read returns the TLS and the users of a listener. They are of no use if there were errors.
func (f *tlsFiles) read(l *policy.Listener) (s security) {
	f.section = "listener." + l.Name
	if l.TLS != nil {
		s.client = f.server(l.TLS)
	}
	if l.UpstreamTLS != nil {
		s.upstream = f.client(l)
	}
	if l.Users != "" {
		s.users = f.users(l.Users)
	}
	return s
}

// users reads the users of an entry.
func (f *tlsFiles) users(path string) *entry.Users {
	text, err := ReadSecret(path)
	if err != nil {
		f.wrong("users", err)
		return nil
	}
	users, err := entry.ParseUsers(string(text))
	if err != nil {
		f.wrong("users", fmt.Errorf("%s: %w", path, err))
	}
	return users
}

// usersOf returns who may log in at a listener now; nil if nobody has to, or there is none.
func (s *Server) usersOf(listener string) *entry.Users {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sv := s.services[listener]; sv != nil {
		return sv.terms.Load().secure.users
	}
	return nil
}

// minTLS is the oldest version that we speak. RFC 8996 forbids older ones.
const minTLS = tls.VersionTLS12

// server returns the TLS with the clients of a listener.
func (f *tlsFiles) server(c *policy.ServerTLS) *tls.Config {
	config := &tls.Config{MinVersion: minTLS, Certificates: []tls.Certificate{f.pair("tls", c.Cert, c.Key)}}
	if c.ClientCA != "" {
		config.ClientCAs, config.ClientAuth = f.authorities("tls.client_ca", c.ClientCA), tls.RequireAndVerifyClientCert
	}
	return config
}

// client returns the TLS with each upstream of a listener. They differ in the name that the
// certificate must have. Each keeps the last session, which the next connection resumes: it costs less, and proves
// who the upstream is by what that session has proved. Files that are read anew resume nothing from before.
//
// With a certificate of ours nothing is resumed. A server may refuse a resumed client only after the handshake (TLS
// 1.3), when messages have left, and crypto/tls would keep that session. OpenSSL does so if the server has set no
// session id context (SSL_CTX_set_session_id_context(3)).
func (f *tlsFiles) client(l *policy.Listener) map[string]*tls.Config {
	c := l.UpstreamTLS
	config := f.config("upstream_tls", c)
	config.NextProtos = alpn(l.Protocol)
	configs := map[string]*tls.Config{}
	for _, to := range l.Upstream {
		one := config.Clone()
		if one.ServerName == "" {
			one.ServerName = policy.ServerName(to)
		}
		if c.Cert == "" {
			one.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}
		configs[to] = one
	}
	return configs
}

// config returns the TLS of a client, as a key of the section describes it.
func (f *tlsFiles) config(key string, c *policy.ClientTLS) *tls.Config {
	config := &tls.Config{MinVersion: minTLS, InsecureSkipVerify: c.Insecure, ServerName: c.ServerName}
	if c.CA != "" {
		config.RootCAs = f.authorities(key+".ca", c.CA)
	}
	if c.Cert != "" {
		pair := f.pair(key, c.Cert, c.Key)
		// Send it even if the server names other authorities: then the server can say what
		// is wrong with it.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config
}

// alpn returns the protocols to offer (ALPN, RFC 7301). Only HTTP has a name there. Plain tcp may
// be HTTP, and a server that knows no ALPN ignores the offer.
func alpn(p policy.Protocol) []string {
	switch p {
	case policy.TCP, policy.HTTP:
		return []string{"http/1.1"}
	}
	return nil
}

// pair reads a certificate and its key. It warns of a certificate that is not valid now.
func (f *tlsFiles) pair(key, certPath, keyPath string) (pair tls.Certificate) {
	certPEM, err := f.contents(readFile, certPath)
	var chain []*x509.Certificate
	if err == nil {
		chain, err = certificatesIn(certPath, certPEM)
	}
	if err != nil {
		f.wrong(key+".cert", err)
	}
	keyPEM, keyErr := f.contents(ReadSecret, keyPath)
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

// isEncrypted reports whether a private key is encrypted, as PKCS #8 (RFC 5958) or as RFC 1421
// has it.
func isEncrypted(keyPEM []byte) bool {
	for block, rest := pem.Decode(keyPEM); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}

// untimely says why a certificate is not valid now; "" if it is.
func untimely(c *x509.Certificate, now time.Time) string {
	switch {
	case now.After(c.NotAfter):
		return "the certificate has expired, on " + c.NotAfter.Format(time.RFC3339)
	case now.Before(c.NotBefore):
		return "the certificate is not valid before " + c.NotBefore.Format(time.RFC3339)
	}
	return ""
}

// authorities reads the certificates of authorities.
func (f *tlsFiles) authorities(key, path string) *x509.CertPool {
	pool := x509.NewCertPool()
	data, err := f.contents(readFile, path)
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

// certificatesIn returns the certificates in the data of a PEM file, at least one.
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

package policy

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// ServerTLS is the key tls of a listener: the TLS of its clients ends here.
type ServerTLS struct {
	// Cert and Key are the paths of PEM files: the certificate with what leads
	// from it to its authority, and its private key.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// ClientCA is the path of a PEM file with authorities, by one of which the
	// certificate has to be signed that each client then has to have; "" asks for
	// none.
	ClientCA string `json:"client_ca,omitempty"`
}

// ClientTLS is the key upstream_tls of a listener: TLS begins here, towards the
// upstream. The zero ClientTLS verifies its certificate by the authorities that
// the system trusts, for the host that upstream names.
type ClientTLS struct {
	CA string `json:"ca,omitempty"` // the path of a PEM file with authorities; "": the system's
	// Cert and Key are the paths of what the upstream may ask for; "" for none.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// ServerName is what the upstream's certificate is for; "" is its host.
	ServerName string `json:"server_name,omitempty"`
	Insecure   bool   `json:"insecure,omitempty"` // verifies nothing
}

const (
	tlsForm         = `a table like { cert = "cert.pem", key = "key.pem" }`
	upstreamTLSForm = `true, or a table like { ca = "ca.pem", cert = "cert.pem", key = "key.pem" }`
	pathForm        = `the path of a PEM file`
	serverNameForm  = `a host name or an address, without a port`
)

var serverTLSFields = []field[ServerTLS]{
	must(one("cert", pathForm, func(s *ServerTLS) *string { return &s.Cert }, parsePath)),
	must(one("key", pathForm, func(s *ServerTLS) *string { return &s.Key }, parsePath)),
	one("client_ca", pathForm, func(s *ServerTLS) *string { return &s.ClientCA }, parsePath),
}

var clientTLSFields = []field[ClientTLS]{
	one("ca", pathForm, func(c *ClientTLS) *string { return &c.CA }, parsePath),
	one("cert", pathForm, func(c *ClientTLS) *string { return &c.Cert }, parsePath),
	one("key", pathForm, func(c *ClientTLS) *string { return &c.Key }, parsePath),
	one("server_name", serverNameForm, func(c *ClientTLS) *string { return &c.ServerName }, parseServerName),
	yesNo("insecure", func(c *ClientTLS) *bool { return &c.Insecure }),
}

func parsePath(s string) (string, error) {
	if s == "" || strings.ContainsRune(s, 0) {
		return "", complain(pathForm, "%q cannot be a path", s)
	}
	return s, nil
}

func parseServerName(s string) (string, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.WithZone("").String(), nil
	}
	if !isHostname(s) {
		return "", complain(serverNameForm, "%q is neither", s)
	}
	return strings.TrimSuffix(s, "."), nil
}

// nested is a field with a table of its own; where it is left out, it is nil. One
// that may be empty is also written as true, and then printed so.
func nested[T, V any](name, form string, at func(*T) **V, fields []field[V], mayBeEmpty bool) field[T] {
	f := field[T]{name: name, form: form,
		get: func(t *T) string { return inline(*at(t), fields) },
		decodeTable: func(r *report, key string, n *node, into *T, whole bool) {
			*at(into) = new(V)
			decode(r, key, n, *at(into), fields, whole)
		},
	}
	f.set = func(t *T, s string) error {
		if s == "true" {
			*at(t) = new(V)
		}
		return nil
	}
	if mayBeEmpty {
		f.takes = booleans
	}
	return f
}

// inline prints a table as the file could have it, without its defaults; "" for
// nil.
func inline[V any](v *V, fields []field[V]) string {
	if v == nil {
		return ""
	}
	var parts []string
	for _, f := range fields {
		switch s := f.get(v); {
		case s == f.get(new(V)):
		case f.takes&texts != 0:
			parts = append(parts, f.name+" = "+quote(s))
		default:
			parts = append(parts, f.name+" = "+s)
		}
	}
	if len(parts) == 0 {
		return "true"
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// tls checks what a listener says about TLS.
func (c *checker) tls(l *Listener) {
	key := join("listener", l.Name)
	if l.Protocol == UDP && c.sound(key+".protocol") {
		const problem, allowed = "the listener is for udp, and TLS is for streams", "leave it out"
		if l.TLS != nil {
			c.wrong(key+".tls", problem, allowed)
		}
		if l.UpstreamTLS != nil {
			c.wrong(key+".upstream_tls", problem, allowed)
		}
		return
	}
	if u := l.UpstreamTLS; u != nil {
		c.upstreamTLS(key, l, u)
	}
}

func (c *checker) upstreamTLS(key string, l *Listener, u *ClientTLS) {
	at := key + ".upstream_tls"
	switch {
	case u.Cert == "" && u.Key != "" && c.sound(at+".cert"):
		c.wrong(at+".key", "there is no certificate for it", "both cert and key, or neither")
	case u.Cert != "" && u.Key == "" && c.sound(at+".key"):
		c.wrong(at+".cert", "there is no key for it", "both cert and key, or neither")
	}
	if u.Insecure && u.CA != "" {
		c.wrong(at+".insecure", "nothing is verified, and so ca means nothing", "ca, or insecure = true, and not both")
	}
	for i, s := range l.Upstream {
		if (s == Echo || s == Discard) && c.sound(key+".upstream") {
			c.wrong(item(key+".upstream", i), fmt.Sprintf("%q is built in, and speaks no TLS", s), "another upstream, or leave upstream_tls out")
		}
	}
}

// warnTLS reports upstreams that could be anybody.
func (c *checker) warnTLS() {
	for _, l := range c.p.Listeners {
		if l.UpstreamTLS != nil && l.UpstreamTLS.Insecure {
			c.warn(join("listener", l.Name)+".upstream_tls.insecure", "nobody verifies who the upstream is: whoever is on the way can read and change everything",
				"ca = the upstream's own certificate, or that of its authority")
		}
	}
}

// tlsPaths calls for each file that TLS of the listeners needs, with its key.
func (p *Policy) tlsPaths(do func(key string, path *string)) {
	for i := range p.Listeners {
		key := join("listener", p.Listeners[i].Name)
		if s := p.Listeners[i].TLS; s != nil {
			do(key+".tls.cert", &s.Cert)
			do(key+".tls.key", &s.Key)
			do(key+".tls.client_ca", &s.ClientCA)
		}
		if u := p.Listeners[i].UpstreamTLS; u != nil {
			do(key+".upstream_tls.ca", &u.CA)
			do(key+".upstream_tls.cert", &u.Cert)
			do(key+".upstream_tls.key", &u.Key)
		}
	}
}

// besideFile has relative paths begin at the directory of the policy file.
func (p *Policy) besideFile(file string) {
	p.Daemon.Control = beside(file, p.Daemon.Control)
	p.tlsPaths(func(_ string, path *string) {
		if *path != "" {
			*path = beside(file, *path)
		}
	})
}

func beside(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// forOthers is the permission of those who are neither the owner nor of the group
// of a file to read it.
const forOthers = 0o004

// openKeys warns of private keys that everybody may read.
func (p *Policy) openKeys() (warnings Errors) {
	p.tlsPaths(func(key string, path *string) {
		if !strings.HasSuffix(key, ".key") || *path == "" {
			return
		}
		if info, err := os.Stat(*path); err == nil && info.Mode().Perm()&forOthers != 0 {
			warnings = append(warnings, p.BindError(key, "", fmt.Sprintf("others may read %s (mode %#o)", *path, info.Mode().Perm()), "chmod o= "+*path))
		}
	})
	return warnings
}

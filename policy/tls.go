package policy

import (
	"net/netip"
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
	require(one("cert", pathForm, func(s *ServerTLS) *string { return &s.Cert }, parsePath)),
	require(one("key", pathForm, func(s *ServerTLS) *string { return &s.Key }, parsePath)),
	one("client_ca", pathForm, func(s *ServerTLS) *string { return &s.ClientCA }, parsePath),
}

var clientTLSFields = []field[ClientTLS]{
	one("ca", pathForm, func(c *ClientTLS) *string { return &c.CA }, parsePath),
	one("cert", pathForm, func(c *ClientTLS) *string { return &c.Cert }, parsePath),
	one("key", pathForm, func(c *ClientTLS) *string { return &c.Key }, parsePath),
	one("server_name", serverNameForm, func(c *ClientTLS) *string { return &c.ServerName }, parseServerName),
	yesNo("insecure", func(c *ClientTLS) *bool { return &c.Insecure }),
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

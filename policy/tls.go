package policy

import (
	"net/netip"
	"strings"
)

// ServerTLS is the key tls of a listener: the listener ends the TLS of its clients.
type ServerTLS struct {
	// Cert and Key are the paths of PEM files. Cert holds the certificate and those
	// between it and its authority, and Key its private key.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// ClientCA is the path of a PEM file with authorities. Every client needs a
	// certificate from one of them. If it is "", clients need none.
	ClientCA string `json:"client_ca,omitempty"`
}

// ClientTLS is the key upstream_tls of a listener: the listener speaks TLS to the upstream. The
// zero ClientTLS verifies that a system-wide authority has issued the upstream's certificate
// for the host in the key upstream.
type ClientTLS struct {
	CA string `json:"ca,omitempty"` // path of a PEM file with authorities; "" uses those of the system
	// Cert and Key are the paths of the certificate and the key that the upstream may ask
	// for; "" if there are none.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// ServerName is the host in the certificate of the upstream; "" is that in upstream.
	ServerName string `json:"server_name,omitempty"`
	Insecure   bool   `json:"insecure,omitempty"` // verify nothing
}

const (
	tlsForm         = `a table like { cert = "cert.pem", key = "key.pem" }`
	upstreamTLSForm = `true, or a table like { ca = "ca.pem", cert = "cert.pem", key = "key.pem" }`
	pathForm        = `the path of a PEM file`
	serverNameForm  = `a host name or an address, without a port`
)

var serverTLSFields = []field[ServerTLS]{
	require(filePath("cert", pathForm, func(s *ServerTLS) *string { return &s.Cert })),
	require(secretPath("key", pathForm, func(s *ServerTLS) *string { return &s.Key })),
	filePath("client_ca", pathForm, func(s *ServerTLS) *string { return &s.ClientCA }),
}

var clientTLSFields = []field[ClientTLS]{
	filePath("ca", pathForm, func(c *ClientTLS) *string { return &c.CA }),
	filePath("cert", pathForm, func(c *ClientTLS) *string { return &c.Cert }),
	secretPath("key", pathForm, func(c *ClientTLS) *string { return &c.Key }),
	one("server_name", serverNameForm, func(c *ClientTLS) *string { return &c.ServerName }, parseServerName),
	yesNo("insecure", func(c *ClientTLS) *bool { return &c.Insecure }),
}

// parseServerName reads a host name or an address.
func parseServerName(s string) (string, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.WithZone("").String(), nil
	}
	if !isHostname(s) {
		return "", complain(serverNameForm, "%q is neither", s)
	}
	return strings.TrimSuffix(s, "."), nil
}

// besideFile makes relative paths begin at the directory of the policy file.
func (p *Policy) besideFile(name string) {
	p.Daemon.Control = beside(name, p.Daemon.Control)
	if s := &p.Daemon.State; *s != "" && *s != StateOfService {
		*s = beside(name, *s)
	}
	file := func(path *string) {
		if *path != "" {
			*path = beside(name, *path)
		}
	}
	p.passwordPaths(file)
	p.tlsPaths(func(_ string, path *string) { file(path) })
}

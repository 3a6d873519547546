package conn

import (
	"crypto/tls"
	"fmt"
	"net/netip"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
)

// reached returns the address of the upstream, once it is reached; "" for none.
func (t *target) reached() string {
	if t.number == 0 {
		return ""
	}
	return destinationName(t.destination)
}

func destinationName(ap netip.AddrPort) string {
	if !ap.IsValid() {
		return ""
	}
	return ap.String()
}

func nameOf(c *shaper.Class) string {
	if c == nil {
		return ""
	}
	return c.Name()
}

// name says for people which of its peers a side of the session leads to.
func (s *side) name() string {
	if s == &s.session.client {
		return "the client"
	}
	return fmt.Sprintf("upstream %s", s.session.name)
}

// versionName is "1.3" for an end over TLS 1.3; "" for one without TLS.
func versionName(end sock.End) string {
	if end, ok := end.(*tlsEnd); ok && end.version >= tls.VersionTLS10 {
		return fmt.Sprintf("1.%d", end.version-tls.VersionTLS10)
	}
	return ""
}

// describe returns what the rules match.
func (t *tcpSession) describe() policy.Conn {
	return policy.Conn{Listener: t.conf.Name, Source: t.source, Port: t.port, Destination: t.destination, Session: t.id}
}

// class returns the class of the session, towards the upstream; nil for none.
func (t *tcpSession) class() *shaper.Class { return t.up.flow.Class() }

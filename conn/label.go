package conn

import (
	"crypto/tls"
	"fmt"
	"net/netip"

	"shaper/shaper"
	"shaper/sock"
)

// clientName names the client: by its address, or by the unix socket that it has connected to.
// If a PROXY header has told the address, clientName adds who told it.
func (t *tcpSession) clientName() string {
	switch {
	case !t.source.IsValid():
		return t.at.String()
	case t.greeting != nil && t.source != t.greeting.peer:
		return t.source.String() + " via " + t.greeting.peer.String()
	}
	return t.source.String()
}

// destinationName returns an address as text; "" if it is invalid.
func destinationName(ap netip.AddrPort) string {
	if !ap.IsValid() {
		return ""
	}
	return ap.String()
}

// bindName returns an address of ours as text; "" if it is invalid.
func bindName(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// nameOf returns the name of a class; "" for none.
func nameOf(c *shaper.Class) string {
	if c == nil {
		return ""
	}
	return c.Name()
}

// beneath returns the end of which a oneMessage reads, and other ends as they are.
func beneath(end sock.End) sock.End {
	if one, ok := end.(*oneMessage); ok {
		return one.End
	}
	return end
}

// versionName returns "1.3" for an end over TLS 1.3; "" for one without TLS.
func versionName(end sock.End) string {
	if end, ok := beneath(end).(*tlsEnd); ok && end.version >= tls.VersionTLS10 {
		return fmt.Sprintf("1.%d", end.version-tls.VersionTLS10)
	}
	return ""
}

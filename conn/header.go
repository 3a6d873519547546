package conn

import (
	"net/netip"
	"slices"
	"time"

	"shaper/entry"
	"shaper/stats"
)

// headerPatience is how long a PROXY header may take.
const headerPatience = 5 * time.Second

// expectsHeader reports whether a connection from a peer begins with a PROXY header. From any
// other network, a header would be part of what the client sends.
func (c *terms) expectsHeader(peer netip.Addr) bool {
	peer = peer.WithZone("")
	return slices.ContainsFunc(c.AcceptProxy, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// readHeader reads the PROXY header of the client, and then goes on with then, as read does. If
// no good header comes in time, the session ends. The session's lock is held.
func (g *greeting) readHeader(then func()) {
	g.read(g.parseHeader, func(err error) {
		g.session.warn(badHeader, "err", err)
		g.session.finish(stats.NoHeader)
	}, then, headerPatience)
}

// parseHeader is the parser of a PROXY header.
func (g *greeting) parseHeader(said []byte) (used int, do func(), err error) {
	told, used, err := entry.ParseProxy(said)
	if used == 0 {
		return 0, nil, err
	}
	return used, func() {
		if told.Source.IsValid() {
			g.session.source, g.intended = told.Source, told.Destination
		}
		g.done()
	}, nil
}

// introduce sends the upstream a PROXY header with the address of the client, if the listener
// has send_proxy. The socket has room for that, since nothing was written before. The session's
// lock is held.
func (t *tcpSession) introduce() error {
	if t.conf.SendProxy == "" {
		return nil
	}
	return writeAll(t.upstream.end, t.conf.header(t.told()))
}

// told returns what a PROXY header to the upstream tells of the client: the address that rules
// see, and the one that it has connected to. The session's lock is held.
func (t *tcpSession) told() entry.Proxy {
	if t.greeting != nil && t.greeting.intended.IsValid() {
		return entry.Proxy{Source: t.source, Destination: t.greeting.intended}
	}
	return entry.Proxy{Source: t.source, Destination: t.client.end.Local()}
}

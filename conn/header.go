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

// expectsHeader reports whether a connection from a peer begins with a PROXY header. From all
// other networks, a header is only bytes.
func (c *terms) expectsHeader(peer netip.Addr) bool {
	peer = peer.WithZone("")
	return slices.ContainsFunc(c.AcceptProxy, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// hearHeader reads the PROXY header of the client, and then calls then without the session's lock.
// The session's lock is held.
func (g *greeting) hearHeader(then func()) {
	g.listenTo(g.header, func(err error) {
		g.session.warn(badHeader, "err", err)
		g.session.finish(stats.NoHeader)
	}, then, headerPatience)
}

// header is the hearing of a PROXY header.
func (g *greeting) header(said []byte) (used int, do func(), err error) {
	told, used, err := entry.ParseProxy(said)
	if used == 0 {
		return 0, nil, err
	}
	return used, func() {
		if told.Source.IsValid() {
			g.session.source, g.asked = told.Source, told.Destination
		}
		g.done()
	}, nil
}

// introduce tells the upstream the address of the client, if the listener says so. The
// connection has room for that, since nothing was written before. The session's lock is held.
func (t *tcpSession) introduce() error {
	if t.conf.SendProxy == "" {
		return nil
	}
	return writeAll(t.upstream.end, t.conf.header(t.told()))
}

// told returns what a PROXY header tells of the client: the address that rules see, and the one
// that it has connected to.
func (t *tcpSession) told() entry.Proxy {
	if t.greeting != nil && t.greeting.asked.IsValid() {
		return entry.Proxy{Source: t.source, Destination: t.greeting.asked}
	}
	return entry.Proxy{Source: t.source, Destination: t.client.end.Local()}
}

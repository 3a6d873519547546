package conn

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"

	"shaper/entry"
	"shaper/policy"
	"shaper/sock"
	"shaper/upstream"
)

// dialCheck connects to an address of an upstream to check it, as sessions do: from the same
// address of ours, with a PROXY header and TLS if the listener has them, and to no listener of
// ours. It charges no class.
func (s *Server) dialCheck(ctx context.Context, by *terms, name string, to netip.AddrPort) (net.Conn, error) {
	c, err := s.connectCheck(ctx, by, name, to)
	if err != nil {
		return nil, err
	}
	// The zero Proxy tells no address: there is no client.
	if header := by.header(entry.Proxy{}); header != nil {
		if _, err := c.Write(header); err != nil {
			c.Close()
			return nil, err
		}
	}
	config := by.secure.upstream[name]
	if config == nil {
		return c, nil
	}
	over := tls.Client(c, config)
	if err := over.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, &upstream.HandshakeError{Err: err}
	}
	return over, nil
}

// connectCheck connects to an address of an upstream, from the first address of bind that can, or to
// its unix socket.
func (s *Server) connectCheck(ctx context.Context, by *terms, name string, to netip.AddrPort) (net.Conn, error) {
	if path, ok := policy.UnixName(name); ok {
		if s.isOwnUnix(path) {
			return nil, upstream.ErrLoop
		}
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	if s.isOwn("tcp", to) {
		return nil, upstream.ErrLoop
	}
	from := sock.Local{Mark: s.marks.mark(nil)}
	var unfit error
	for _, from.Addr = range by.Bind {
		if !policy.Reaches(from.Addr, to.Addr()) {
			continue
		}
		c, err := s.connectFrom(ctx, from, to)
		if unfit = sourceError(err, from.Addr); !isOfSource(unfit) {
			return c, err
		}
	}
	if unfit != nil {
		return nil, unfit
	}
	from.Addr = netip.Addr{} // the kernel chooses
	return s.connectFrom(ctx, from, to)
}

// connectFrom connects from our side to an address. It waits until that is done.
func connectFrom(ctx context.Context, from sock.Local, to netip.AddrPort) (net.Conn, error) {
	dialer := net.Dialer{Control: controlOf(from)}
	if from.Addr.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from.Addr, 0))
	}
	c, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c, refuseSelf(c)
}

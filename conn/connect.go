package conn

import (
	"io"
	"net"
	"net/netip"

	"shaper/policy"
	"shaper/sock"
	"shaper/upstream"
)

// connectFrom starts to connect the side to an address, from our side.
func (s *side) connectFrom(from sock.Local, to netip.AddrPort) error {
	end, err := s.session.server.network.Dial(to, from)
	if err != nil {
		return sourceError(err, from.Addr)
	}
	s.end = end
	return nil
}

// connectUnix connects the side to a unix socket, at once.
func (s *side) connectUnix(name string) error {
	if s.session.server.isOwnUnix(name) {
		return upstream.ErrLoop
	}
	end, err := s.session.server.network.DialUnix(name)
	if err != nil {
		return err
	}
	s.end, s.Writable = end, true
	return nil
}

// builtins are the built-in upstreams. Each serves one end of a connection until it reads EOF.
var builtins = map[string]func(net.Conn){
	policy.Echo:    func(c net.Conn) { io.Copy(c, c) },
	policy.Discard: func(c net.Conn) { io.Copy(io.Discard, c) },
}

// connectBuiltin connects the side to a built-in upstream, at once.
func (s *side) connectBuiltin(serve func(net.Conn)) error {
	t := s.session
	end, theirs, err := t.server.network.Pair()
	if err != nil {
		return err
	}
	t.server.wg.Go(func() {
		defer theirs.Close()
		defer t.server.rescue(t) // a panic must not look like a clean end, so theirs is closed after this
		serve(theirs)
	})
	s.end, s.Writable = end, true
	return nil
}

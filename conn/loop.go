package conn

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"shaper/sock"
	"shaper/upstream"
)

// refuseSelf closes a connection of a socket with itself, and returns an error for it. That
// happens if nobody listens on the dialled port, and the kernel chooses this port for us.
func refuseSelf(c net.Conn) error {
	if addrPortOf(c.LocalAddr()) != addrPortOf(c.RemoteAddr()) {
		return nil
	}
	c.Close()
	return fmt.Errorf("dial %s: %w", c.RemoteAddr(), upstream.ErrLoop)
}

// isOwn reports whether an address leads to one of our own listeners, or to the relay of a SOCKS
// client. to may be an unspecified address, or any address of this machine if the listener is bound
// to all.
func (s *Server) isOwn(network string, to netip.AddrPort) bool {
	for _, own := range s.boundTo(network, to.Port()) {
		if upstream.Reaches(own.addr, to.Addr(), own.both) {
			return true
		}
	}
	return false
}

// isOwnUnix reports whether the name of a unix socket leads to one of our own listeners. Several
// paths may lead to one listener.
func (s *Server) isOwnUnix(name string) bool {
	s.mu.Lock()
	var own []string
	for _, b := range s.bound {
		own = append(own, b.local().unix)
	}
	s.mu.Unlock()
	return slices.ContainsFunc(own, func(own string) bool { return sock.SameName(own, name) })
}

// ownHost is the address of one of our listeners. both says that a listener at [::] accepts
// IPv4, too.
type ownHost struct {
	addr netip.Addr
	both bool
}

// ownPorts are the addresses of our sockets by network and port. A new session looks at those of one
// port only: there may be hundreds of listeners.
type ownPorts map[ownPort][]ownHost

type ownPort struct {
	network string
	port    uint16
}

// ownPortsOf returns the ports of bound sockets.
func ownPortsOf(sockets map[address]bound) ownPorts {
	ports := ownPorts{}
	for at, b := range sockets {
		own := b.local()
		port := ownPort{own.network, own.addr.Port()}
		ports[port] = append(ports[port], ownHost{own.addr.Addr(), networkOf("", at.text) != "6"})
	}
	return ports
}

// boundTo returns the addresses of our sockets that are bound to a port.
func (s *Server) boundTo(network string, port uint16) []ownHost {
	s.mu.Lock()
	defer s.mu.Unlock()
	hosts := slices.Clip(s.ports[ownPort{network, port}])
	if network == "udp" {
		for _, at := range s.relayAt.hosts(port) {
			hosts = append(hosts, ownHost{at, false})
		}
	}
	return hosts
}

// relayAddrs are the addresses of associations. The zero relayAddrs is empty and ready to use.
type relayAddrs struct {
	mu     sync.Mutex
	byPort map[uint16][]netip.Addr
}

// enter notes the address of an association. leave must follow.
func (r *relayAddrs) enter(at netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPort == nil {
		r.byPort = map[uint16][]netip.Addr{}
	}
	r.byPort[at.Port()] = append(r.byPort[at.Port()], at.Addr())
}

// leave undoes enter.
func (r *relayAddrs) leave(at netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := slices.DeleteFunc(r.byPort[at.Port()], func(one netip.Addr) bool { return one == at.Addr() })
	if r.byPort[at.Port()] = rest; len(rest) == 0 {
		delete(r.byPort, at.Port())
	}
}

// hosts returns the addresses with a port.
func (r *relayAddrs) hosts(port uint16) []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.byPort[port])
}

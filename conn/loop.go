package conn

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"shaper/sock"
)

// refuseSelf closes a connection of a socket with itself, and returns an error for it. That
// happens if nobody listens on the dialled port, and the kernel chooses this port for us.
func refuseSelf(c net.Conn) error {
	if addrPortOf(c.LocalAddr()) != addrPortOf(c.RemoteAddr()) {
		return nil
	}
	c.Close()
	return fmt.Errorf("dial %s: %w", c.RemoteAddr(), errLoop)
}

// isOwn reports whether an address leads to one of our own listeners. That may be an
// unspecified address, or any address of this machine if the listener is bound to all.
func (s *Server) isOwn(network string, to netip.AddrPort) bool {
	for _, own := range s.boundTo(network, to.Port()) {
		if sameHost(own.addr, to.Addr(), own.both) {
			return true
		}
	}
	return false
}

// isOwnUnix reports whether the name of a unix socket leads to one of our own listeners. Each
// may have several paths.
func (s *Server) isOwnUnix(name string) bool {
	s.mu.Lock()
	var own []string
	for _, b := range s.bound {
		own = append(own, b.local().unix)
	}
	s.mu.Unlock()
	return slices.ContainsFunc(own, func(own string) bool { return sock.SameName(own, name) })
}

// ownHost is the address of one of our listeners. both says that it accepts IPv4, too, if it is
// [::].
type ownHost struct {
	addr netip.Addr
	both bool
}

// boundTo returns the addresses of our sockets that are bound to a port.
func (s *Server) boundTo(network string, port uint16) (hosts []ownHost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, b := range s.bound {
		if own := b.local(); own.network == network && own.addr.Port() == port {
			hosts = append(hosts, ownHost{own.addr.Addr(), networkOf("", at.text) != "6"})
		}
	}
	return hosts
}

// sameHost reports whether a connection to the address to could reach a socket that is bound to
// own. both is that of ownHost.
func sameHost(own, to netip.Addr, both bool) bool {
	own, to = own.WithZone(""), to.WithZone("")
	if to.IsUnspecified() { // Linux connects it to the loopback address
		to = loopback(to.Is4())
	}
	if own.IsUnspecified() {
		return (own.Is4() == to.Is4() || own.Is6() && both) && isLocal(to)
	}
	return own == to
}

func loopback(v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// isLocal reports whether an address is one of this machine's.
func isLocal(a netip.Addr) bool { return a.IsLoopback() || interfaces.have(a) }

// interfaces caches the addresses of this machine for a second, since each new UDP session
// asks for them.
var interfaces addresses

type addresses struct {
	mu    sync.Mutex // guards the fields below
	known map[netip.Addr]bool
	asked time.Time
}

func (as *addresses) have(a netip.Addr) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	if now := time.Now(); now.Sub(as.asked) > time.Second {
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return true // a refused connection is better than a loop
		}
		as.known, as.asked = map[netip.Addr]bool{}, now
		for _, one := range addrs {
			if p, ok := one.(*net.IPNet); ok {
				ip, _ := netip.AddrFromSlice(p.IP)
				as.known[ip.Unmap()] = true
			}
		}
	}
	return as.known[a]
}

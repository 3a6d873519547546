package upstream

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"shaper/policy"
)

// An Address is one of the addresses of an upstream. It is invalid for a built-in upstream and
// for a unix socket.
type Address struct {
	netip.AddrPort
	// Of an SRV record (RFC 2782); zero for the others.
	Host             string // whose address it is
	Priority, Weight uint16
}

// Literal returns the address of an upstream that needs no lookup: an invalid one if the
// upstream is built in or a unix socket.
func Literal(upstream string) (at Address, known bool) {
	if _, isUnix := policy.UnixName(upstream); isUnix || upstream == policy.Echo || upstream == policy.Discard || upstream == Chosen {
		return Address{}, true
	}
	if ap, err := netip.ParseAddrPort(upstream); err == nil {
		return Address{AddrPort: Unmapped(ap)}, true
	}
	return Address{}, false
}

// Unmapped returns an IPv4-mapped IPv6 address as the IPv4 address.
func Unmapped(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Reaches reports whether a connection to the address to could reach a socket that is bound to
// own. If own is [::], both says that the socket accepts IPv4, too.
func Reaches(own, to netip.Addr, both bool) bool {
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

// have reports whether this machine has an address; true if it cannot find out.
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

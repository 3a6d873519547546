package conn

import (
	"net"
	"net/netip"
	"strings"

	"shaper/policy"
)

// address is where the policy wants a socket bound.
type address struct {
	network policy.Protocol
	text    string // as the policy has it: "127.0.0.1:80"
	owner   string // the listener, if the kernel chooses the port, so that each listener gets its own
}

// addressOf returns the address that text, in listen of the listener, stands for.
func addressOf(l *policy.Listener, text string) address {
	at := address{network: l.Network(), text: text}
	if strings.HasSuffix(text, ":0") {
		at.owner = l.Name
	}
	return at
}

func (a address) String() string { return string(a.network) + " " + a.text }

// networkOf returns the network for binding an address: 0.0.0.0 is all of IPv4, [::] is all of
// IPv6, and only an empty host is both.
func networkOf(network, address string) string {
	host, _, err := net.SplitHostPort(address)
	ip, parseErr := netip.ParseAddr(host)
	switch {
	case err != nil || parseErr != nil:
		return network
	case ip.Is4():
		return network + "4"
	}
	return network + "6"
}

// localAddr is where a socket is bound: with the port, if the kernel has chosen it.
type localAddr struct {
	network string
	addr    netip.AddrPort // invalid for a unix socket
	unix    string         // the name of a unix socket; "" for none
}

// localAddrOf returns the address of a socket of a network.
func localAddrOf(network string, a net.Addr) localAddr {
	if u, ok := a.(*net.UnixAddr); ok {
		return localAddr{network: network, unix: u.Name}
	}
	return localAddr{network: network, addr: addrPortOf(a)}
}

// String prints the address as a policy has it.
func (a localAddr) String() string {
	if a.unix != "" {
		return "unix:" + a.unix
	}
	return a.addr.String()
}

// bound is a bound socket, which accepts for a service.
type bound interface {
	// serve starts to accept for a service.
	serve(*service)
	// retarget changes the service of all connections to come.
	retarget(*service)
	// leadsTo returns the present service.
	leadsTo() *service
	// intercept makes the socket accept what nftables leads to it; see sock.Listener.
	intercept() (undo func(), err error)
	// local returns where the socket is bound.
	local() localAddr
	// isGone reports whether the file of a unix socket was removed; see sock.Listener.
	isGone() bool
	// close stops accepting. Open sessions go on, perhaps through this very socket.
	close()
}

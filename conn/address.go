package conn

import (
	"net"
	"net/netip"
	"strings"

	"shaper/policy"
)

// address is where a socket is bound: "tcp", "127.0.0.1:80".
type address struct {
	network policy.Protocol
	text    string // as the policy has it
	owner   string // the listener, where the kernel chooses the port: each gets one of its own
}

func addressOf(l *policy.Listener, text string) address {
	at := address{network: l.Protocol.Network(), text: text}
	if strings.HasSuffix(text, ":0") {
		at.owner = l.Name
	}
	return at
}

func (a address) String() string { return string(a.network) + " " + a.text }

// networkOf returns the network of an address as an operator reads it: 0.0.0.0
// is all of IPv4, [::] all of IPv6, and only an empty host is both.
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

// localAddr is where one of our sockets is bound.
type localAddr struct {
	network string
	addr    netip.AddrPort
}

// bound is a bound socket, and what accepts from it.
type bound interface {
	serve(*service)    // starts accepting for a service
	retarget(*service) // from the next connection on
	leadsTo() *service
	local() localAddr // where it is really bound
	close()           // stops accepting; sessions go on, perhaps through this very socket
}

package entry

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Datagrams reads the headers of the datagrams that a SOCKS client sends to its relay (RFC 1928,
// section 7). One goroutine at a time may use it. The zero Datagrams is ready.
type Datagrams struct {
	// names are the hosts of recent names, as the client writes them. So a name allocates nothing
	// when it comes again.
	names map[string]Destination
}

// maxNames bounds names.
const maxNames = 256

var (
	// ErrFragment is the error for a fragment. As RFC 1928 permits, there is no reassembly.
	ErrFragment = errors.New("the datagram is a fragment")
	// ErrDatagram is the error for a datagram without a valid header.
	ErrDatagram = errors.New("the datagram has no valid SOCKS header")
)

// Read returns where a datagram is to go, and the size of its header. What follows is its payload.
func (d *Datagrams) Read(data []byte) (to Destination, size int, err error) {
	if len(data) < 4 || data[0] != 0 || data[1] != 0 {
		return to, 0, ErrDatagram
	}
	if data[2] != 0 {
		return to, 0, ErrFragment
	}
	host, rest, enough, _ := socksHostOf(data)
	if !enough || len(rest) < 2 {
		return to, 0, ErrDatagram
	}
	to, ok := d.destination(host, binary.BigEndian.Uint16(rest))
	if !ok {
		return Destination{}, 0, ErrDatagram
	}
	return to, len(data) - len(rest) + 2, nil
}

// destination returns a host with a port, if that is a valid destination. It remembers names.
func (d *Datagrams) destination(host socksTarget, port uint16) (to Destination, ok bool) {
	if host.addr.IsValid() {
		return host.destination(port)
	}
	if to, ok = d.names[string(host.name)]; ok {
		to.Port = port
		return to, port != 0
	}
	if to, ok = host.destination(port); !ok {
		return to, false
	}
	if d.names == nil || len(d.names) == maxNames {
		d.names = map[string]Destination{}
	}
	d.names[string(host.name)] = to
	return to, true
}

// AppendDatagram appends the header of a datagram to the client, which comes from an address.
func AppendDatagram(to []byte, from netip.AddrPort) []byte {
	return appendSOCKS(append(to, 0, 0, 0), from)
}

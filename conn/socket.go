package conn

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"shaper/shaper"
	"shaper/unit"

	"golang.org/x/sys/unix"
)

// addrPortOf returns an address with IPv4-mapped IPv6 unmapped; the zero
// AddrPort for what is no TCP or UDP address.
func addrPortOf(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return unmapped(ap)
}

func unmapped(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Sizes of the receive buffer of a client's socket. What a client sends stands
// there before shaping is felt, so it is sized to slow classes; above the
// largest the kernel's own tuning is left alone.
const (
	maxReceiveBuffer = 128 << 10
	receiveTime      = 250 * time.Millisecond // of the class's rate
	// minSegments is how many of the connection's segments must fit: with
	// less, the sender waits for room that never opens far enough, and sends
	// by its probe timer.
	minSegments = 3
	// fastReceiveBuffer is for a class that was slow and is not any more.
	fastReceiveBuffer = 4 << 20
)

// receiveBufferOf returns the SO_RCVBUF that a class wants, if it has room for
// minSegments; 0 leaves it to the kernel.
func receiveBufferOf(c *shaper.Class) int {
	if c == nil || c.Rate().Kind() != unit.Bytes || !c.Enforces() {
		return 0
	}
	n := c.Rate().Units(receiveTime)
	if n > maxReceiveBuffer {
		return 0
	}
	return max(int(n), 1)
}

func lacksDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

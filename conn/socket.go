package conn

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/shaper"
	"shaper/sock"
	"shaper/unit"
	"shaper/upstream"
)

// addrPortOf returns a TCP or UDP address, unmapped; the zero AddrPort for any other.
func addrPortOf(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return upstream.Unmapped(ap)
}

// controlOf sets the options of a socket that connects from our side, for a net.Dialer.
func controlOf(from sock.Local) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			d := sock.Descriptor(fd)
			if from.Mark != 0 {
				d.Set(sock.Mark, int(from.Mark))
			}
			if from.Unicast {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 0) // package net sets it
			}
			if from.Foreign {
				d.Set(sock.Transparent, 1) // if the kernel refuses, so does bind
			}
			if from.Addr.IsValid() {
				d.BindLate()
			}
		})
	}
}

// Sizes of a receive buffer. A peer fills it before it feels the shaping, so a slow class wants
// a small one. Above the largest, the kernel tunes it.
const (
	maxReceiveBuffer = 128 << 10
	receiveTime      = 250 * time.Millisecond // the buffer holds what the class sends in this time
	// minSegments is how many segments must fit. With less room the window never opens far
	// enough, and the sender sends only when its probe timer fires.
	minSegments = 3
	// fastReceiveBuffer is for a socket whose class was slow and is so no more.
	fastReceiveBuffer = 4 << 20
)

// receiveBufferOf returns the SO_RCVBUF that a class wants, apart from minSegments; 0 leaves it
// to the kernel.
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

// lacksDescriptors reports whether an error says that no descriptor is free.
func lacksDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

var errNoRoom = errors.New("the socket has no room for the first bytes of the connection")

// writeAll writes the first bytes of a connection, for which there is room.
func writeAll(end sock.End, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	n, err := end.Write(data)
	for err == unix.EINTR {
		n, err = end.Write(data)
	}
	if err == nil && n < len(data) {
		return errNoRoom
	}
	return err
}

// A lostError says that this machine does not have an address of bind.
type lostError struct{ from netip.Addr }

func (e *lostError) Error() string {
	return fmt.Sprintf("from %v: bind: %v", e.from, unix.EADDRNOTAVAIL)
}

func (e *lostError) Unwrap() error { return unix.EADDRNOTAVAIL }

// sourceError returns a PortError if err says that an address of ours has no port free, and a lostError if
// it says that this machine does not have the address.
func sourceError(err error, from netip.Addr) error {
	switch {
	case errors.Is(err, sock.ErrNoPort):
		return &upstream.PortError{From: from}
	case from.IsValid() && errors.Is(err, unix.EADDRNOTAVAIL):
		return &lostError{from}
	}
	return err
}

// isOfSource reports whether an attempt may succeed from another address of ours: err is a PortError or a
// lostError.
func isOfSource(err error) bool {
	return errors.As(err, new(*upstream.PortError)) || errors.As(err, new(*lostError))
}

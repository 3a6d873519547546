package conn

import (
	"math"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/shaper"
	"shaper/unit"
)

// stream is a connection whose descriptor can be read and written without
// holding a buffer while it is not ready.
type stream struct {
	conn   streamConn
	raw    syscall.RawConn
	name   string         // "127.0.0.1:80", "echo:"
	remote netip.AddrPort // invalid for what is built in
}

// streamConn is a *net.TCPConn or, for what is built in, a *net.UnixConn.
type streamConn interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

func newStream(c streamConn, name string) (stream, error) {
	raw, err := c.SyscallConn()
	return stream{conn: c, raw: raw, name: name, remote: addrPortOf(c.RemoteAddr())}, err
}

// reset closes a connection with a RST where it is TCP: the peer sees that it
// did not end cleanly. What the kernel still held for it is discarded.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

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

// descriptors returns how many the process may have.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // what POSIX systems give at least
	}
	return int(min(limit.Cur, math.MaxInt32))
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
	if c == nil || c.Rate().Kind() != unit.Bytes {
		return 0
	}
	n := c.Rate().Units(receiveTime)
	if n > maxReceiveBuffer {
		return 0
	}
	return max(int(n), 1)
}

// segmentOf returns the largest segment of a connection: some 1,400 bytes on
// most networks, 64 KiB on the loopback device.
func segmentOf(raw syscall.RawConn) (n int) {
	raw.Control(func(fd uintptr) {
		n, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) // 0 for what is not TCP
	})
	return n
}

// setReceiveBuffer sets SO_RCVBUF, of which the kernel doubles what it is given
// for its own overhead (socket(7)).
func setReceiveBuffer(raw syscall.RawConn, n int) {
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, n) // at worst it stays as it was
	})
}

// kernelGivesUp is about when Linux gives up on data that nobody acknowledges
// (tcp_retries2 in ip-sysctl.rst).
const kernelGivesUp = 15 * time.Minute

// setUserTimeout has the kernel give up on a dead peer within the idle timeout,
// where by itself it would try for longer (RFC 5482; tcp(7)).
func setUserTimeout(raw syscall.RawConn, idle time.Duration) {
	if idle <= 0 || idle >= kernelGivesUp {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(idle.Milliseconds(), 1)))
	})
}

// broken reports whether the peer has reset the connection.
func broken(raw syscall.RawConn) (yes bool) {
	raw.Control(func(fd uintptr) { yes = eventsOf(fd)&unix.POLLERR != 0 })
	return yes
}

// eventsOf returns what poll(2) tells of a connection unasked: POLLERR, an error
// that stays for whoever reads or writes next; POLLHUP, it is down both ways.
func eventsOf(fd uintptr) int16 {
	poll := []unix.PollFd{{Fd: int32(fd)}}
	if n, err := unix.Poll(poll, 0); err != nil || n == 0 {
		return 0
	}
	return poll[0].Revents
}

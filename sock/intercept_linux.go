package sock

import (
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Intercept implements Listener. It needs CAP_NET_ADMIN. With nftables' tproxy, the local address
// of an accepted connection is the one that its client means (IP_TRANSPARENT in ip(7)). Accepted
// connections inherit the mark.
func (l *ListeningSocket) Intercept(mark uint32) (undo func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.fd.Interception()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fd.Restore(before)
	}, l.fd.Intercept(mark)
}

// An Interception is what Intercept and InterceptDatagrams change of a socket.
type Interception struct{ transparent, mark int }

// Interception returns what the socket intercepts now.
func (d Descriptor) Interception() Interception { return Interception{d.Get(Transparent), d.Get(Mark)} }

// Restore makes the socket intercept what it did before.
func (d Descriptor) Restore(before Interception) {
	d.Set(Transparent, before.transparent)
	d.Set(Mark, before.mark)
	if before.transparent == 0 {
		setNow(int(d), unix.IPPROTO_IPV6, unix.IPV6_RECVORIGDSTADDR, 0)
		setNow(int(d), unix.IPPROTO_IP, unix.IP_RECVORIGDSTADDR, 0)
	}
}

// Intercept makes a socket transparent (IP_TRANSPARENT in ip(7)), and marks its packets.
func (d Descriptor) Intercept(mark uint32) error {
	if d.Get(Transparent) == 0 {
		if err := unix.SetsockoptInt(int(d), unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1); err != nil {
			return os.NewSyscallError("setsockopt IP_TRANSPARENT", err)
		}
	}
	return os.NewSyscallError("setsockopt SO_MARK", unix.SetsockoptInt(int(d), unix.SOL_SOCKET, unix.SO_MARK, int(mark)))
}

// InterceptDatagrams makes a UDP socket accept what nftables' tproxy leads to it, and report where
// each datagram was sent: see [Incoming.Intended].
func (d Descriptor) InterceptDatagrams(mark uint32) error {
	if err := d.Intercept(mark); err != nil {
		return err
	}
	// A socket of one family refuses the option of the other.
	v6 := unix.SetsockoptInt(int(d), unix.IPPROTO_IPV6, unix.IPV6_RECVORIGDSTADDR, 1)
	v4 := unix.SetsockoptInt(int(d), unix.IPPROTO_IP, unix.IP_RECVORIGDSTADDR, 1)
	if v4 != nil && v6 != nil {
		return os.NewSyscallError("setsockopt IP_RECVORIGDSTADDR", v4)
	}
	return nil
}

// Deafen makes a socket discard all that comes from now on.
func (d Descriptor) Deafen() error {
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // keep 0 bytes of each packet
	return os.NewSyscallError("setsockopt SO_ATTACH_FILTER", unix.SetsockoptSockFprog(int(d), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing}))
}

// Intended returns the address that the client of an accepted connection has connected to: the
// one before nftables redirected the connection, if it did, and otherwise the local one.
func Intended(e End) netip.AddrPort {
	if s, ok := e.(*Socket); ok {
		if before, ok := s.beforeRedirect(); ok {
			return before
		}
	}
	return e.Local()
}

// originalDestination is SO_ORIGINAL_DST of linux/netfilter_ipv4.h, and the same number for IPv6.
const originalDestination = 80

// beforeRedirect returns what netfilter knows of a connection that it tracks.
func (d Descriptor) beforeRedirect() (netip.AddrPort, bool) {
	level := unix.IPPROTO_IPV6
	if d.Local().Addr().Is4() {
		level = unix.IPPROTO_IP
	}
	var name sockname
	size := uint32(unsafe.Sizeof(name))
	_, _, errno := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(d), uintptr(level), originalDestination,
		uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size)), 0)
	at := name.addrPort()
	return at, errno == 0 && at.IsValid()
}

package sock

import (
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sockets do not block, so these calls return within microseconds. They are raw: Go's
// scheduler does not know of them. Otherwise it would wake its monitor thread at each call
// after a moment of idleness, which doubles the cost of a slow class; and it would take the
// processor away at each call that takes a while, such as connect.

// result turns the result of a system call into a count and an error.
func result(n, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// readNow is read(2). 0 bytes are the end.
func readNow(fd int, p []byte) (int, error) {
	return result(syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

// peekNow is recv(2) with MSG_PEEK: it leaves the bytes to be read.
func peekNow(fd int, p []byte) (int, error) {
	return result(syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_PEEK, 0, 0))
}

// sendNow is send(2).
func sendNow(fd int, p []byte) (int, error) {
	return result(syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
		unix.MSG_NOSIGNAL, 0, 0))
}

// spliceNow is splice(2).
func spliceNow(from, to, n int) (int, error) {
	return result(syscall.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), unix.SPLICE_F_NONBLOCK))
}

// acceptNow is accept4(2), and returns the address of the other end.
func acceptNow(listener int) (fd int, from netip.AddrPort, err error) {
	var name sockname
	size := uint32(unsafe.Sizeof(name))
	fd, err = result(syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0))
	return fd, name.addrPort(), err
}

// socketNow is socket(2), for TCP.
func socketNow(family int) (fd int, err error) {
	return result(syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP))
}

// connectNow is connect(2).
func connectNow(fd int, to netip.AddrPort) error {
	name, size := socknameOf(to)
	_, err := result(syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&name)), size))
	return err
}

// bindNow is bind(2).
func bindNow(fd int, to netip.AddrPort) error {
	name, size := socknameOf(to)
	_, err := result(syscall.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&name)), size))
	return err
}

// localOf is getsockname(2).
func localOf(fd int) netip.AddrPort {
	var name sockname
	size := uint32(unsafe.Sizeof(name))
	syscall.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size)))
	return name.addrPort()
}

// setNow is setsockopt(2). It ignores errors: all goes on without the option.
func setNow(fd, level, option, value int) {
	v := int32(value)
	syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
}

// getNow is getsockopt(2). It returns 0 if there is no such option.
func getNow(fd, level, option int) int {
	var v int32
	size := uint32(unsafe.Sizeof(v))
	syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	return int(v)
}

// lingerNow makes close(2) reset the connection (SO_LINGER).
func lingerNow(fd int) {
	v := unix.Linger{Onoff: 1}
	syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
}

// shutdownNow is shutdown(2) for writing.
func shutdownNow(fd int) error {
	_, err := result(syscall.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0))
	return err
}

// ringNow makes an eventfd readable.
func ringNow(fd int) {
	n := uint64(1)
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&n)), unsafe.Sizeof(n)) // fails only if it is readable already
}

// closeNow is close(2).
func closeNow(fd int) { syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// sockname is an address for the kernel, of IPv6 or IPv4.
type sockname unix.RawSockaddrInet6

// socknameOf returns an address for the kernel, and its size in bytes.
func socknameOf(ap netip.AddrPort) (name sockname, size uintptr) {
	port := (*[2]byte)(unsafe.Pointer(&name.Port)) // the same place in an address of IPv4
	port[0], port[1] = byte(ap.Port()>>8), byte(ap.Port())
	if ap.Addr().Is4() {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&name))
		v4.Family, v4.Addr = unix.AF_INET, ap.Addr().As4()
		return name, unix.SizeofSockaddrInet4
	}
	name.Family, name.Addr = unix.AF_INET6, ap.Addr().As16()
	name.Scope_id = scopeOf(ap.Addr().Zone())
	return name, unix.SizeofSockaddrInet6
}

// scopeOf returns the index of a zone, which is the name or the number of an interface
// (RFC 4007); 0 if there is none.
func scopeOf(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if one, err := net.InterfaceByName(zone); err == nil {
		return uint32(one.Index)
	}
	n, _ := strconv.ParseUint(zone, 10, 32)
	return uint32(n)
}

// addrPort returns the address without its zone. It is invalid unless it is of IPv4 or IPv6.
func (n *sockname) addrPort() netip.AddrPort {
	bytes := (*[2]byte)(unsafe.Pointer(&n.Port))
	port := uint16(bytes[0])<<8 | uint16(bytes[1])
	switch n.Family {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(n)).Addr), port)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16(n.Addr).Unmap(), port)
	}
	return netip.AddrPort{}
}

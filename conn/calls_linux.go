package conn

import (
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sockets do not block, so these calls return within microseconds. They are raw:
// Go's scheduler is not told of them. Else it would wake its monitor thread for
// each that comes after a moment of idleness, which doubles what a slow class
// costs; and take the processor away for each that lasts a while, as connect does.

// result makes an error of what a system call has returned.
func result(n, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// readNow is read(2); 0 bytes are the end.
func readNow(fd int, p []byte) (int, error) {
	return result(syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
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

// shutdownNow is shutdown(2) of what is written.
func shutdownNow(fd int) error {
	_, err := result(syscall.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0))
	return err
}

// closeNow is close(2).
func closeNow(fd int) { syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// sockname is an address as the kernel has it: large enough for IPv6, and for
// IPv4 too.
type sockname unix.RawSockaddrInet6

// socknameOf returns an address for the kernel, and its size.
func socknameOf(ap netip.AddrPort) (name sockname, size uintptr) {
	port := (*[2]byte)(unsafe.Pointer(&name.Port)) // the same place in IPv4's
	port[0], port[1] = byte(ap.Port()>>8), byte(ap.Port())
	if ap.Addr().Is4() {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&name))
		v4.Family, v4.Addr = unix.AF_INET, ap.Addr().As4()
		return name, unix.SizeofSockaddrInet4
	}
	name.Family, name.Addr = unix.AF_INET6, ap.Addr().As16()
	if zone := ap.Addr().Zone(); zone != "" {
		if one, err := net.InterfaceByName(zone); err == nil {
			name.Scope_id = uint32(one.Index)
		}
	}
	return name, unix.SizeofSockaddrInet6
}

// addrPort returns an address, without its zone; invalid for what is neither
// IPv4 nor IPv6.
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

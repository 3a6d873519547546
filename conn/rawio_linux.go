package conn

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The descriptors of connections do not block, so these calls return within
// microseconds. They are raw: Go's scheduler is not told of them, or it would
// wake its monitor thread for each that comes after a moment of idleness,
// which doubles what a slow class costs.

// readNow is read(2); 0 bytes are the end.
func readNow(fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// sendNow is send(2).
func sendNow(fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

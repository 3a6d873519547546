package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// caller is who asks for something. The log names it beside each change.
type caller struct {
	uid  uint32
	pid  int32
	what string // "signal", "timer", "start", "watch" or "failure", which have no uid and pid; "": a process
}

// String returns the caller as the log names it.
func (c caller) String() string {
	if c.what != "" {
		return c.what
	}
	return fmt.Sprintf("uid=%d pid=%d", c.uid, c.pid)
}

var (
	bySignal = caller{what: "signal"}
	byTimer  = caller{what: "timer"}
	byStart  = caller{what: "start"}
	// byWatch is the daemon, which sees that something in the kernel has changed.
	byWatch = caller{what: "watch"}
	// byFailure stops the daemon because a part of it has ended.
	byFailure = caller{what: "failure"}
)

// credentials returns the process on the other side of a unix socket (SO_PEERCRED), as it was
// when it connected.
func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	ctlErr := withDescriptor(c, func(fd int) { cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(ctlErr, err)
}

// withDescriptor calls f with the descriptor of a socket.
func withDescriptor(c syscall.Conn, f func(fd int)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

// groups returns the supplementary groups of the process on the other side (SO_PEERGROUPS).
func groups(c *net.UnixConn) (gids []uint32, err error) {
	const most = 65536 // NGROUPS_MAX
	gids = make([]uint32, most)
	size := uint32(most * 4)
	ctlErr := withDescriptor(c, func(fd int) {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&gids[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			err = os.NewSyscallError("getsockopt SO_PEERGROUPS", errno)
		}
	})
	return slices.Clip(gids[:size/4]), errors.Join(ctlErr, err)
}

// authorize returns who is on the other side, and an error if he may not use the control
// socket. Only root, our own user and the group of the socket's file may. The kernel has already
// checked the mode of the file; authorize holds even if that mode is too wide.
func (s *controlSocket) authorize(c *net.UnixConn) (caller, error) {
	peer, err := credentials(c)
	if err != nil {
		return caller{}, fmt.Errorf("cannot tell who the caller is: %w", err)
	}
	by := caller{uid: peer.Uid, pid: peer.Pid}
	if peer.Uid == 0 || int(peer.Uid) == os.Geteuid() {
		return by, nil
	}
	file, err := os.Stat(s.path)
	if err != nil {
		return by, err
	}
	group := file.Sys().(*syscall.Stat_t).Gid
	if peer.Gid == group {
		return by, nil
	}
	gids, err := groups(c)
	if err != nil {
		return by, err
	}
	if !slices.Contains(gids, group) {
		return by, fmt.Errorf("user %d is neither root, nor the user of shaper, nor in group %d of the control socket", peer.Uid, group)
	}
	return by, nil
}

// callerKey is the key of an identity in the context of a request.
type callerKey struct{}

// identity is who asks. If err is not nil, it says why he may not.
type identity struct {
	caller
	err error
}

// identify is the ConnContext of http.Server for the control socket. It puts the identity of the
// caller into the context of each request.
func (s *controlSocket) identify(ctx context.Context, c net.Conn) context.Context {
	by, err := s.authorize(c.(*countedConn).Conn.(*net.UnixConn))
	return context.WithValue(ctx, callerKey{}, identity{by, err})
}

// callerOf returns the identity that identify has put into a context. Without one, err says so.
func callerOf(ctx context.Context) identity {
	id, ok := ctx.Value(callerKey{}).(identity)
	if !ok {
		id.err = errors.New("the caller is not known")
	}
	return id
}

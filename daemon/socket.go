package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path, in bytes, that fits into a sockaddr_un (unix(7)).
const maxSocketPath = 107

// controlSocket is the bound control socket. Close removes its file if the file is still its own.
type controlSocket struct {
	*net.UnixListener
	path string
	file fs.FileInfo // of the file that binding made
}

// listenControl binds the control socket with mode 0660 from its first moment on. It makes a
// missing directory with mode 0750, and removes the socket of a dead daemon. If a daemon lives,
// the error wraps ErrRunning.
func listenControl(path string) (*controlSocket, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("control socket %s: the path has %d bytes, and at most %d fit", path, len(path), maxSocketPath)
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	defer unlock()
	if err := removeDead(path); err != nil {
		return nil, err
	}
	// The umask is that of the whole process, but shaper makes no other files.
	old := syscall.Umask(0o117)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &controlSocket{l, path, file}, nil
}

// Close stops listening and removes the socket's file. A file that another daemon has put in
// its place stays.
func (s *controlSocket) Close() error {
	if unlock, err := lockDir(filepath.Dir(s.path)); err == nil {
		defer unlock()
	}
	// Remove it before closing: until then no other file can have its inode.
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// makeDir makes a directory with mode 0750, whatever the umask. It does not change one that
// exists.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return os.Chmod(dir, 0o750)
}

// lockPatience bounds how long lockDir waits for another daemon.
const lockPatience = 5 * time.Second

// lockDir keeps other daemons from binding or removing sockets in a directory. So of two daemons
// that start at once, one finds the other alive.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(10 * time.Millisecond) {
		err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { d.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || time.Now().After(deadline) {
			d.Close()
			return nil, &fs.PathError{Op: "lock", Path: dir, Err: err}
		}
	}
}

// ErrRunning is the error if another daemon serves the control socket.
var ErrRunning = errors.New("another shaper is running")

// removeDead removes a socket that nobody serves any longer. If a daemon serves it, the error
// wraps ErrRunning. A file that is not a socket stays, and is an error.
func removeDead(path string) error {
	file, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if file.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("control socket %s: the file is not a socket; remove it, or change daemon.control", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		defer c.Close()
		return errRunningAt(c.(*net.UnixConn), path)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, unix.EAGAIN): // the backlog is full
		return fmt.Errorf("%w and does not answer (control socket %s)", ErrRunning, path)
	}
	return fmt.Errorf("control socket: %w", err)
}

// errRunningAt returns ErrRunning with the pid of the daemon, if that is known.
func errRunningAt(c *net.UnixConn, path string) error {
	if peer, err := credentials(c); err == nil {
		return fmt.Errorf("%w (pid %d, control socket %s)", ErrRunning, peer.Pid, path)
	}
	return fmt.Errorf("%w (control socket %s)", ErrRunning, path)
}

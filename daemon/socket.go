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

// maxSocketPath is what sockaddr_un has room for.
const maxSocketPath = 107

// controlSocket is the bound control socket. It removes its file when it is
// closed, if the file is still its own.
type controlSocket struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listenControl binds the control socket: mode 0660 from its first moment, in
// a directory that is made with mode 0750 if it is missing. What a dead daemon
// has left is removed; a living one is an error.
func listenControl(path string) (*controlSocket, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("control socket %s: the path has %d bytes; at most %d fit", path, len(path), maxSocketPath)
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
	// The umask holds for the whole process; shaper makes no other files.
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

// Close stops listening. A file that another daemon has put in the place of
// ours stays.
func (s *controlSocket) Close() error {
	if unlock, err := lockDir(filepath.Dir(s.path)); err == nil {
		defer unlock()
	}
	// Removed before it is closed: until then nothing else can have its inode.
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// makeDir makes a directory with mode 0750, whatever the umask. One that is
// there is left as it is.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return os.Chmod(dir, 0o750)
}

const lockPatience = 5 * time.Second

// lockDir keeps other daemons from binding or removing sockets in a directory,
// so that of two that start at once one finds the other alive.
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

// ErrRunning says that another daemon serves the control socket.
var ErrRunning = errors.New("another shaper is running")

// removeDead removes a socket that nobody serves any more.
func removeDead(path string) error {
	file, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if file.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("control socket %s: there is a file that is no socket; remove it, or change daemon.control", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		defer c.Close()
		return runningAt(c.(*net.UnixConn), path)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, unix.EAGAIN): // its backlog is full
		return fmt.Errorf("%w and does not answer (control socket %s)", ErrRunning, path)
	}
	return fmt.Errorf("control socket: %w", err)
}

func runningAt(c *net.UnixConn, path string) error {
	if peer, err := credentials(c); err == nil {
		return fmt.Errorf("%w (pid %d, control socket %s)", ErrRunning, peer.Pid, path)
	}
	return fmt.Errorf("%w (control socket %s)", ErrRunning, path)
}

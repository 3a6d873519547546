package sock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A unix socket has a name: the path of its file, or "@" and a name in the abstract namespace
// of unix(7), which has no file.

// MaxName is the longest name, in bytes, that fits into a sockaddr_un (unix(7)).
const MaxName = 107

// Access says who may connect to a unix socket with a file. Linux lets those connect who may
// write to the file. An abstract name has no file, so anybody may connect to it.
type Access struct {
	Mode     fs.FileMode // of the file
	UID, GID int         // of the file; -1: those of the process
}

// BindUnix listens at a name. The file has its mode from its first moment on. If the socket of
// a dead process is there, BindUnix replaces it; if a process lives, the error is a
// ServedError. file is nil for an abstract name. When l is closed, the file stays: call
// file.Remove before.
func BindUnix(name string, who Access) (l *net.UnixListener, file *File, err error) {
	switch {
	case len(name) > MaxName:
		return nil, nil, fmt.Errorf("the path has %d bytes, and at most %d fit", len(name), MaxName)
	case IsAbstract(name):
		l, err := listenUnix(name)
		return l, nil, err
	}
	unlock, err := lockDir(filepath.Dir(name))
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if err := removeDead(name); err != nil {
		return nil, nil, err
	}
	return bindFile(name, who)
}

// IsAbstract reports whether a name is in the abstract namespace.
func IsAbstract(name string) bool { return strings.HasPrefix(name, "@") }

func listenUnix(name string) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
}

// bindFile listens at a path where nothing is.
func bindFile(path string, who Access) (*net.UnixListener, *File, error) {
	// The umask is that of the whole process, but shaper makes no other files whose mode
	// depends on it.
	old := unix.Umask(int(0o777 &^ who.Mode))
	l, err := listenUnix(path)
	unix.Umask(old)
	if err != nil {
		return nil, nil, err
	}
	l.SetUnlinkOnClose(false)
	file := &File{path: path}
	if file.info, err = os.Lstat(path); err == nil && (who.UID >= 0 || who.GID >= 0) {
		err = os.Lchown(path, who.UID, who.GID)
	}
	if err != nil {
		file.Remove()
		l.Close()
		return nil, nil, err
	}
	return l, file, nil
}

// File is the file of a bound unix socket. A nil File is that of an abstract name.
type File struct {
	path string
	info fs.FileInfo // of the file that binding made
}

// Remove removes the file. A file that another process has put in its place stays.
func (f *File) Remove() {
	if f == nil {
		return
	}
	if unlock, err := lockDir(filepath.Dir(f.path)); err == nil {
		defer unlock()
	}
	// The socket is still open, so no other file can have its inode.
	if f.isThere() {
		os.Remove(f.path)
	}
}

// Permit changes who may connect. It does nothing if another process has replaced the file.
func (f *File) Permit(who Access) error {
	if f == nil || !f.isThere() {
		return nil
	}
	if who.UID >= 0 || who.GID >= 0 {
		if err := os.Lchown(f.path, who.UID, who.GID); err != nil {
			return err
		}
	}
	return os.Chmod(f.path, who.Mode)
}

// IsGone reports whether somebody has removed the file, and put nothing in its place.
func (f *File) IsGone() bool {
	if f == nil {
		return false
	}
	_, err := os.Lstat(f.path)
	return errors.Is(err, fs.ErrNotExist)
}

// isThere reports whether the path still leads to this file.
func (f *File) isThere() bool {
	now, err := os.Lstat(f.path)
	return err == nil && os.SameFile(now, f.info)
}

// SameName reports whether a connection to the name to arrives at the socket that is bound to
// own. Several paths may lead to one file.
func SameName(own, to string) bool {
	if own == to {
		return true
	}
	if own == "" || IsAbstract(own) || IsAbstract(to) {
		return false
	}
	one, err := os.Stat(own)
	other, otherErr := os.Stat(to)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}

// ServedError is the error if another process serves a unix socket. It wraps EADDRINUSE.
type ServedError struct {
	Path string
	PID  int  // of that process; 0: it is not known
	Busy bool // its queue of connections is full
}

func (e *ServedError) Error() string {
	switch {
	case e.Busy:
		return e.Path + ": another program listens there, and does not answer"
	case e.PID == 0:
		return e.Path + ": another program listens there"
	}
	return fmt.Sprintf("%s: another program (pid %d) listens there", e.Path, e.PID)
}

func (e *ServedError) Unwrap() error { return unix.EADDRINUSE }

// removeDead removes a socket that no process serves any longer. If one does, the error is a
// ServedError. A file that is not a socket stays, and is an error.
func removeDead(path string) error {
	file, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if file.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s: the file is not a socket; remove it, or choose another path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		defer c.Close()
		return &ServedError{Path: path, PID: pidBehind(c.(*net.UnixConn))}
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, unix.EAGAIN):
		return &ServedError{Path: path, Busy: true}
	}
	return err
}

// pidBehind returns the process at the other end of a connection; 0 if it is not known.
func pidBehind(c *net.UnixConn) (pid int) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { pid = pidOf(int(fd)) })
	}
	return pid
}

// pidOf returns the id of the process at the other end of a unix socket; 0 if it is unknown.
func pidOf(fd int) int {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(peer.Pid)
}

// lockPatience bounds how long lockDir waits for another process.
const lockPatience = 5 * time.Second

// lockDir keeps other processes of ours from binding or removing sockets in a directory. So of
// two that start at once, one finds the other alive.
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

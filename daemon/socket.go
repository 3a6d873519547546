package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"shaper/sock"
)

// controlSocket is the bound control socket. Close removes its file if the file is still its own.
type controlSocket struct {
	*net.UnixListener
	path string
	file *sock.File
}

// ErrRunning is the error if another daemon serves the control socket.
var ErrRunning = errors.New("another shaper is running")

// listenControl binds the control socket with mode 0660 from its first moment on. It makes a
// missing directory with mode 0750, and removes the socket of a dead daemon. If a daemon lives,
// the error wraps ErrRunning.
func listenControl(path string) (*controlSocket, error) {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l, file, err := sock.BindUnix(path, sock.Access{Mode: 0o660, UID: -1, GID: -1})
	var served *sock.ServedError
	switch {
	case err == nil:
		return &controlSocket{l, path, file}, nil
	case !errors.As(err, &served):
		return nil, fmt.Errorf("control socket: %w", err)
	case served.Busy:
		return nil, fmt.Errorf("%w and does not answer (control socket %s)", ErrRunning, path)
	case served.PID == 0:
		return nil, fmt.Errorf("%w (control socket %s)", ErrRunning, path)
	}
	return nil, fmt.Errorf("%w (pid %d, control socket %s)", ErrRunning, served.PID, path)
}

// Close stops listening and removes the socket's file. A file that another daemon has put in
// its place stays.
func (s *controlSocket) Close() error {
	s.file.Remove()
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

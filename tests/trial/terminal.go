package trial

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// OpenTerminal returns both ends of a terminal of this size (pty(7)).
func OpenTerminal(t *testing.T, columns, rows uint16) (near, far *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		SkipUnlessCI(t, "there are no terminals here: %v", err)
	}
	near = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { near.Close() })
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	}
	if err == nil {
		far, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		SkipUnlessCI(t, "there are no terminals here: %v", err)
	}
	return near, far
}

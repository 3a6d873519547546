package sock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"shaper/tests/trial"
)

func mustListenUnix(t *testing.T, name string, who Access) Listener {
	t.Helper()
	l, err := Kernel{}.ListenUnix(name, who)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// expectAccess fails the test unless a file has this mode and these owners.
func expectAccess(t *testing.T, path string, who Access) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	of := info.Sys().(*syscall.Stat_t)
	if got := (Access{info.Mode().Perm(), int(of.Uid), int(of.Gid)}); got != who {
		t.Errorf("it has %+v, want %+v", got, who)
	}
}

// A socket has the mode and the owners that were asked for, whatever the umask. Permit changes
// them.
func TestAccess(t *testing.T) {
	uid, gid := os.Getuid(), os.Getgid()
	for _, umask := range []int{0, 0o077} {
		for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
			t.Run(fmt.Sprintf("umask %03o mode %03o", umask, mode), func(t *testing.T) {
				defer syscall.Umask(syscall.Umask(umask))
				path := filepath.Join(trial.ShortDir(t), "s")
				l := mustListenUnix(t, path, Access{mode, -1, -1})
				expectAccess(t, path, Access{mode, uid, gid})
				if uid == 0 {
					uid, gid := 12345, 23456
					l.Permit(Access{0o640, uid, gid})
					expectAccess(t, path, Access{0o640, uid, gid})
					other := path + "2"
					mustListenUnix(t, other, Access{mode, uid, -1})
					expectAccess(t, other, Access{mode, uid, 0})
				} else {
					l.Permit(Access{0o640, -1, -1})
					expectAccess(t, path, Access{0o640, uid, gid})
				}
				if got := syscall.Umask(umask); got != umask {
					t.Errorf("the umask is %o afterwards", got)
				}
			})
		}
	}
}

// A listener replaces the socket of a dead process, and neither a living one nor another file.
func TestStaleSockets(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "s")
	dead, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	living := mustListenUnix(t, path, everybody)
	_, err = Kernel{}.ListenUnix(path, everybody)
	want := fmt.Sprintf("%s: another program (pid %d) listens there", path, os.Getpid())
	if !errors.Is(err, unix.EADDRINUSE) || err.Error() != want {
		t.Errorf("beside a living socket: %v, want %s", err, want)
	}
	if err := living.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close the file is still there: %v", err)
	}
	os.WriteFile(path, []byte("precious"), 0o600)
	if _, err := (Kernel{}).ListenUnix(path, everybody); err == nil || !strings.Contains(err.Error(), "the file is not a socket") {
		t.Errorf("over a file: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "precious" {
		t.Errorf("the file holds %q", text)
	}
}

// If nobody accepts, a dial finds no room, and a listener knows that the socket is served.
func TestBusySocket(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "s")
	mustListenUnix(t, path, everybody)
	var err error
	for range 1 << 16 { // more than a backlog holds (net.core.somaxconn)
		var e End
		if e, err = (Kernel{}).DialUnix(path); err != nil {
			break
		}
		defer e.Close()
	}
	var served *ServedError
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a dial returns %v", err)
	} else if _, err := (Kernel{}).ListenUnix(path, everybody); !errors.As(err, &served) || !served.Busy {
		t.Errorf("a listener returns %v", err)
	}
}

// Close and Permit do not touch what another process has put in the place of the file.
func TestSuccessorsSocket(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "s")
	old := mustListenUnix(t, path, everybody)
	os.Remove(path)
	mustListenUnix(t, path, Access{0o600, -1, -1})
	old.Permit(everybody)
	old.Close()
	expectAccess(t, path, Access{0o600, os.Getuid(), os.Getgid()})
}

// An abstract name has no file, and only one listener.
func TestAbstractName(t *testing.T) {
	name := fmt.Sprintf("@shaper test %d", os.Getpid())
	l := mustListenUnix(t, name, everybody)
	if _, err := (Kernel{}).ListenUnix(name, everybody); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	if err := l.Permit(everybody); err != nil {
		t.Error(err)
	}
	c, err := net.Dial("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// A name is the same in every spelling that leads to one file.
func TestSameName(t *testing.T) {
	dir := trial.ShortDir(t)
	path, other, link := filepath.Join(dir, "s"), filepath.Join(dir, "other"), filepath.Join(dir, "link")
	mustListenUnix(t, path, everybody)
	mustListenUnix(t, other, everybody)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]bool{path: true, link: true, dir + "/../" + filepath.Base(dir) + "/s": true, other: false, "@s": false, dir + "/none": false} {
		if SameName(path, to) != want {
			t.Errorf("%s is %s: want %v", to, path, want)
		}
	}
	if !SameName("@s", "@s") || SameName("@s", path) || SameName("", path) {
		t.Error("abstract names")
	}
}

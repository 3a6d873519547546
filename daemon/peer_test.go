package daemon

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"shaper/tests/trial"
)

// dialAs connects to a unix socket as another user. Only one thread of the process becomes that
// user, and it ends with its goroutine.
func dialAs(path string, uid, gid int, groups ...uint32) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		done <- func() error {
			var first unsafe.Pointer
			if len(groups) > 0 {
				first = unsafe.Pointer(&groups[0])
			}
			for _, call := range [][4]uintptr{
				{unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0},
				{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
				{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
			} {
				if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
					return errno
				}
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd) // the listener still knows who connected
			return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}()
	}()
	return <-done
}

func TestAuthorize(t *testing.T) {
	if os.Geteuid() != 0 {
		trial.SkipUnlessCI(t, "only root can be other users")
	}
	const group, nobody = 4242, 65534
	dir := trial.ShortDir(t)
	s := mustListen(t, filepath.Join(dir, "c.sock"))
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(s.path, 0, group); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who      string
		mode     os.FileMode
		uid, gid int
		groups   []uint32
		connects bool
		denied   string // the error; "": allowed
	}{
		{"root", 0o660, 0, 0, nil, true, ""},
		{"in the group", 0o660, 1000, group, nil, true, ""},
		{"in the group among others", 0o660, 1000, 1000, []uint32{7, group, 9}, true, ""},
		{"a stranger", 0o660, nobody, nobody, nil, false, ""},
		{"a stranger, with the mode too wide", 0o666, nobody, nobody, []uint32{7}, true, "user 65534 is neither root"},
	} {
		if err := os.Chmod(s.path, c.mode); err != nil {
			t.Fatal(err)
		}
		err := dialAs(s.path, c.uid, c.gid, c.groups...)
		if (err == nil) != c.connects {
			t.Errorf("%s: connecting: %v", c.who, err)
		}
		if err != nil {
			continue
		}
		accepted, err := s.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		by, err := s.authorize(accepted)
		accepted.Close()
		if c.denied == "" && err != nil || c.denied != "" && (err == nil || !strings.Contains(err.Error(), c.denied)) {
			t.Errorf("%s: authorize: %v", c.who, err)
		}
		if int(by.uid) != c.uid || int(by.pid) != os.Getpid() {
			t.Errorf("%s is logged as %v", c.who, by)
		}
	}
}

// A request without an identity is refused.
func TestUnknownCaller(t *testing.T) {
	if id := callerOf(t.Context()); id.err == nil {
		t.Error("a request without an identity is served")
	}
}

func TestCredentials(t *testing.T) {
	s := mustListen(t, filepath.Join(trial.ShortDir(t), "c.sock"))
	c, err := net.Dial("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if peer, err := credentials(c.(*net.UnixConn)); err != nil || int(peer.Pid) != os.Getpid() {
		t.Errorf("the listener is %v, %v", peer, err)
	}
}

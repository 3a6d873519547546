package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"shaper/tests/trial"
)

func mustListen(t *testing.T, path string) *controlSocket {
	t.Helper()
	s, err := listenControl(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// Whatever the umask, only the group may use the socket and the directory that is made for it.
func TestControlModes(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		t.Run(fmt.Sprintf("%03o", umask), func(t *testing.T) {
			defer syscall.Umask(syscall.Umask(umask))
			path := filepath.Join(trial.ShortDir(t), "made", "c.sock")
			mustListen(t, path)
			if got := mode(t, path); got != 0o660 {
				t.Errorf("the socket has mode %o", got)
			}
			if got := mode(t, filepath.Dir(path)); got != 0o750 {
				t.Errorf("the directory has mode %o", got)
			}
			if got := syscall.Umask(umask); got != umask {
				t.Errorf("the umask is %o afterwards", got)
			}
		})
	}
}

func TestControlLeavesDirectory(t *testing.T) {
	dir := trial.ShortDir(t)
	if err := os.Chmod(dir, 0o705); err != nil {
		t.Fatal(err)
	}
	mustListen(t, filepath.Join(dir, "c.sock"))
	if got := mode(t, dir); got != 0o705 {
		t.Errorf("the mode of a directory that existed is now %o", got)
	}
}

// leaveDead makes a socket as a daemon that was killed leaves it.
func leaveDead(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestControlReplacesDead(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "c.sock")
	leaveDead(t, path)
	mustListen(t, path)
}

func TestControlLiving(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "c.sock")
	mustListen(t, path)
	_, err := listenControl(path)
	want := fmt.Sprintf("another shaper is running (pid %d, control socket %s)", os.Getpid(), path)
	if !errors.Is(err, ErrRunning) || err.Error() != want {
		t.Errorf("error is %q, want %q", err, want)
	}
	if _, err := net.Dial("unix", path); err != nil {
		t.Errorf("the socket of the living daemon is gone: %v", err)
	}
}

// If many daemons start at once over a dead socket, one wins and is reachable.
func TestControlRace(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "c.sock")
	leaveDead(t, path)
	var mu sync.Mutex
	var won []*controlSocket
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			s, err := listenControl(path)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, s)
			} else if !errors.Is(err, ErrRunning) {
				t.Errorf("a loser gets %v, want ErrRunning", err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d of 16 have bound the socket", len(won))
	}
	defer won[0].Close()
	if c, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

func TestControlKeepsFiles(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "c.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := listenControl(path)
	if err == nil || !strings.Contains(err.Error(), "the file is not a socket") {
		t.Errorf("error is %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "precious" {
		t.Errorf("the file holds %q", text)
	}
}

// A daemon removes its own socket, and not that of its successor.
func TestControlClose(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "c.sock")
	old := mustListen(t, path)
	os.Remove(path)
	mustListen(t, path)
	old.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the successor's socket: %v", err)
	}
	other := filepath.Join(filepath.Dir(path), "d.sock")
	mustListen(t, other).Close()
	if _, err := os.Lstat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("our own socket is still there: %v", err)
	}
}

func TestControlLongPath(t *testing.T) {
	_, err := listenControl("/tmp/" + strings.Repeat("x", 103))
	if err == nil || !strings.Contains(err.Error(), "108 bytes") {
		t.Errorf("error is %v", err)
	}
}

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"shaper/policy"
	"shaper/sock"
	"shaper/state"
)

func listenError(network string, addr net.Addr, errno syscall.Errno) error {
	return &net.OpError{Op: "listen", Net: network, Addr: addr, Err: os.NewSyscallError("bind", errno)}
}

// The error of an address that cannot be bound has its place in the file, and a remedy.
func TestUnusable(t *testing.T) {
	p, _, err := policy.Parse("a.toml", []byte(strings.Replace(base, `"127.0.0.1:0"`+"\nupstream", "[\"127.0.0.1:1\", \":80\"]\nupstream", 1)))
	if err != nil {
		t.Fatal(err)
	}
	u := &unusable{policy: p}
	u.add("daemon.http", nil)
	u.addListeners(nil)
	if len(u.errs) != 0 {
		t.Errorf("without errors there are %v", u)
	}
	low := listenError("tcp", &net.TCPAddr{Port: 80}, syscall.EACCES)
	u.add("daemon.control", fmt.Errorf("control socket: %w", &fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.EACCES}))
	u.addListeners(errors.Join(fmt.Errorf("listener.echo.listen: %w", low), fmt.Errorf("listener.quick.listen: %w", errors.New("no socket"))))
	want := "a.toml:2:11: daemon.control: control socket: mkdir /x: permission denied; " + needsDirectory + "\n" +
		"a.toml:12:26: listener.echo.listen: listen tcp :80: bind: permission denied; " + needsCapability + "\n" +
		"a.toml:16:10: listener.quick.listen: no socket"
	if u.Error() != want || CodeOf(u) != CodePermission {
		t.Errorf("the code is %v, and the error\n%v", CodeOf(u), u)
	}
}

func TestRemedy(t *testing.T) {
	high := &net.TCPAddr{Port: 8080}
	for _, c := range []struct {
		err  error
		want string
	}{
		{listenError("tcp", high, syscall.EADDRINUSE), portTaken},
		{listenError("udp", &net.UDPAddr{Port: 53}, syscall.EACCES), needsCapability},
		{listenError("tcp", high, syscall.EACCES), ""},
		{listenError("tcp", high, syscall.EADDRNOTAVAIL), notLocal},
		{listenError("unix", &net.UnixAddr{Name: "/x/c.sock", Net: "unix"}, syscall.EACCES), needsDirectory},
		{&sock.ServedError{Path: "/x/c.sock"}, socketTaken},
		{&fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.EROFS}, needsDirectory},
		{&fs.PathError{Op: "lchown", Path: "/x/c.sock", Err: syscall.EPERM}, needsOwner},
		{user.UnknownUserError("nobody1"), needsAccount},
		{user.UnknownGroupError("nobody1"), needsAccount},
		{&net.OpError{Op: "listen", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "x.invalid"}}, needsAddress},
		{errors.New("anything"), ""},
	} {
		if got := remedyBind(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

// If the directory of the control socket cannot be opened, the code is not that of a policy
// file that cannot be opened.
func TestUnboundIsNoMissingFile(t *testing.T) {
	u := &unusable{policy: &policy.Policy{}}
	_, _, err := sock.BindUnix(filepath.Join(t.TempDir(), "none", "c.sock"), sock.Access{})
	if u.add("daemon.control", err); CodeOf(u) != CodeFailed {
		t.Errorf("%v has the code %v", u, CodeOf(u))
	}
}

// The remedy follows what the last key is, whatever the section is called.
func TestRemedyOfASectionCalledTLS(t *testing.T) {
	taken, missing := listenError("tcp", &net.TCPAddr{Port: 8080}, syscall.EADDRINUSE), &fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}
	for _, c := range []struct {
		key  string
		err  error
		want string
	}{
		{"listener.tls.listen", taken, portTaken},
		{"listener.a.upstream_tls.b.listen", taken, portTaken},
		{"listener.tls.mode", syscall.EPERM, needsNetAdmin},
		{"listener.tls.users", missing, needsUsers},
		{"daemon.state", missing, needsStateDir},
		{"daemon.state", state.ErrInUse, needsOwnState},
		{"daemon.state", state.ErrNoFile, needsStateFile},
		{"daemon.state", state.ErrForeign, needsStateFile},
		{"daemon.state", &os.LinkError{Op: "link", Old: "/x", New: "/x.damaged", Err: syscall.EPERM}, needsNoFile},
		{"fleet.tls.password_file", missing, needsPassword},
		{"fleet.tls.sentinel_password_file", missing, needsPassword},
		{"fleet.tls.tls.ca", missing, needsFile},
		{"listener.tls.upstream_tls.key", missing, needsFile},
		{"listener.tls.tls.client_ca", missing, needsFile},
		{"listener.tls.tls.cert", missing, needsFile},
	} {
		u := &unusable{policy: &policy.Policy{}}
		if u.add(c.key, c.err); u.errs[0].Allowed != c.want {
			t.Errorf("%s: %q, want %q", c.key, u.errs[0].Allowed, c.want)
		}
	}
}

// A file that may not be read is a matter of files: a later start may find it readable. Only a socket that may
// not be bound lacks a permission of the service.
func TestUnusableLacksPermission(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}
	for key, want := range map[string]Code{
		"daemon.control": CodePermission, "daemon.http": CodePermission, "listener.a.b.listen": CodePermission, "listener.a.mode": CodePermission,
		"daemon.state": CodeFailed, "listener.a.tls.cert": CodeFailed, "listener.a.upstream_tls.key": CodeFailed, "listener.a.users": CodeFailed,
		"fleet.a.password_file": CodeFailed, "fleet.a.tls.ca": CodeFailed,
	} {
		u := &unusable{policy: &policy.Policy{}}
		if u.add(key, denied); CodeOf(u) != want {
			t.Errorf("%s: the code is %v, want %v", key, CodeOf(u), want)
		}
	}
}

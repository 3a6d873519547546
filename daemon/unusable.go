package daemon

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"shaper/conn"
	"shaper/policy"
	"shaper/sock"
	"shaper/state"
)

// unusable is the error of a policy that names addresses that cannot be bound, or files that cannot
// be used. It has an error for each, with its place in the policy file and a remedy.
type unusable struct {
	policy *policy.Policy
	errs   policy.Errors
	causes []error // one for each of errs
	denied bool    // the process lacks a permission to bind something
}

func (u *unusable) Error() string   { return u.errs.Error() }
func (u *unusable) Unwrap() []error { return u.causes }

// add records that the address or file of a key cannot be used. It ignores a nil error.
func (u *unusable) add(key string, err error) {
	if err == nil {
		return
	}
	address := ""
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Addr != nil {
		address = op.Addr.String()
		if op.Addr.Network() == "unix" {
			address = "unix:" + address
		}
	}
	u.denied = u.denied || isBound(key) && errors.Is(err, fs.ErrPermission)
	u.errs = append(u.errs, u.policy.BindError(key, address, err.Error(), remedy(key, err)))
	u.causes = append(u.causes, err)
}

// addListeners adds each error that conn.Server.Prepare or conn.Files.Check has joined. Each is
// about an address or a file, and begins with its key.
func (u *unusable) addListeners(err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, one := range joined.Unwrap() {
		key, _, _ := strings.Cut(one.Error(), ": ")
		u.add(key, errors.Unwrap(one))
	}
}

const (
	// Remedies, as an error shows them after a semicolon.
	needsCapability = "a port below 1024 needs CAP_NET_BIND_SERVICE, which the unit in systemd/ gives with AmbientCapabilities="
	needsNetAdmin   = "a transparent listener needs CAP_NET_ADMIN, which the unit in systemd/ gives with AmbientCapabilities="
	portTaken       = "another program listens there, or this one on an address that overlaps: `ss -ltunp` shows which"
	socketTaken     = "`ss -lxp` shows which"
	notLocal        = "an address of this machine"
	needsReading    = "the user that runs shaper must be able to read it and to enter its directories"
	needsFile       = "the path of a PEM file; a relative path begins at the directory of the policy file"
	needsOwnState   = "each shaper needs a file of its own"
	needsStateDir   = "make its directory, writable for the user that runs shaper, or set daemon.state; the unit in systemd/ makes /var/lib/shaper with StateDirectory="
	needsStateFile  = "the path of a file, which shaper makes, in a directory that it may write to"
	needsOwnFile    = "the user that runs shaper must be able to read and to write it: `chown` gives it to that user"
	needsNoFile     = "move that file away, or set daemon.state to the path of another; without one, classes start as if nothing had left"
	needsPEM        = "a PEM file: a certificate followed by those that lead to its authority, or the private key of the certificate"
	needsUsers      = "a file that the user of shaper can read, with lines NAME:HASH of argon2id or bcrypt, as `htpasswd -nB NAME` prints them"
	needsPassword   = "the path of a file whose first line is the password, and not the password itself; a relative path begins at the directory of the policy file"
	needsOwner      = "a group that the user that runs shaper is in: run `usermod -aG GROUP shaper` and restart shaper; only root may give a file to another user"
	needsAccount    = "the name or the number of one of this machine (getent(1))"
	needsAddress    = "an address of this machine, or a name that leads to one"
	needsDirectory  = "make its directory, writable for the user that runs shaper, or choose another path; the unit in systemd/ makes /run/shaper with RuntimeDirectory="
)

// remedy returns what may help against the error of a key; "" if the error itself says enough.
func remedy(key string, err error) string {
	switch {
	case isTLSKey(key):
		return remedyTLS(err)
	case strings.HasSuffix(key, "password_file"):
		return remedyPassword(err)
	case key == "daemon.state":
		return remedyState(err)
	case strings.HasSuffix(key, ".mode"):
		return needsNetAdmin
	case strings.HasSuffix(key, ".users"):
		return needsUsers
	}
	return remedyBind(err)
}

// remedyBind returns what may help against an error of bind, or of the directory or the owner of
// a unix socket; "" if the error itself says enough.
func remedyBind(err error) string {
	var op *net.OpError
	var path *fs.PathError
	switch {
	case errors.As(err, &path) && path.Op == "lchown":
		return needsOwner
	case errors.As(err, new(user.UnknownUserError)), errors.As(err, new(user.UnknownGroupError)):
		return needsAccount
	case errors.As(err, new(*net.DNSError)):
		return needsAddress
	case errors.As(err, new(*sock.ServedError)):
		return socketTaken
	case errors.Is(err, syscall.EADDRINUSE):
		return portTaken
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return notLocal
	case errors.As(err, &op) && errors.Is(err, fs.ErrPermission) && isLow(op.Addr):
		return needsCapability
	case errors.As(err, &op) && op.Net != "unix":
		return ""
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return needsDirectory
	}
	return ""
}

// isLow reports whether an address has a port that needs a capability to bind.
func isLow(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.Port < 1024
	case *net.UDPAddr:
		return a.Port < 1024
	}
	return false
}

// isBound reports whether a key names what shaper binds, and not a file that it reads.
func isBound(key string) bool {
	return key == "daemon.control" || key == "daemon.http" || strings.HasSuffix(key, ".listen") || strings.HasSuffix(key, ".mode")
}

// isTLSKey reports whether a key names a TLS file. Only its last part says so: a listener or a fleet may be called "tls".
func isTLSKey(key string) bool {
	return slices.Contains([]string{"ca", "cert", "client_ca", "key"}, key[strings.LastIndex(key, ".")+1:])
}

// remedyTLS returns what may help against a TLS file that cannot be used.
func remedyTLS(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return needsReading
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		return needsFile
	}
	return needsPEM
}

// remedyPassword returns what may help against the file of a password that cannot be used.
func remedyPassword(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return needsReading
	}
	return needsPassword
}

// remedyState returns what may help against a state file that cannot be used.
func remedyState(err error) string {
	switch {
	case errors.Is(err, state.ErrInUse):
		return needsOwnState
	case errors.Is(err, state.ErrNoFile), errors.Is(err, state.ErrForeign):
		return needsStateFile
	case errors.As(err, new(*os.LinkError)):
		return needsNoFile
	case isDeniedFile(err):
		return needsOwnFile
	}
	return needsStateDir
}

// isDeniedFile reports whether an error is about a file that is there, and not about its directory, and that this process may
// not open.
func isDeniedFile(err error) bool {
	var path *fs.PathError
	if !errors.As(err, &path) || path.Op != "open" || !errors.Is(err, fs.ErrPermission) {
		return false
	}
	_, err = os.Stat(path.Path)
	return err == nil
}

// stateFile returns the path of the state file for a value of daemon.state; "" if there is none.
func stateFile(value string) string {
	if value != policy.StateOfService {
		return value
	}
	// systemd separates several directories by colons (systemd.exec(5))
	dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "state")
}

// CheckFiles reads the certificates, keys and passwords that a policy names, and returns what is wrong with
// them as [policy.Errors]. It also checks that there can be a state file. A file that this process may not read
// is only a warning, because whoever checks a policy need not be the user that runs shaper.
func CheckFiles(p *policy.Policy) (warnings policy.Errors, err error) {
	of := conn.ReadFiles(p)
	untimely, broken := of.Check()
	dubious, failed := &unusable{policy: p}, &unusable{policy: p}
	for _, f := range p.Fleets {
		_, warnings, err := readStore(f)
		dubious.addListeners(warnings)
		failed.addListeners(err)
	}
	dubious.addListeners(untimely)
	failed.addListeners(broken)
	for i := range dubious.errs {
		dubious.errs[i].Allowed = "a certificate that is valid now"
	}
	checkState(p, dubious, failed)
	unread, errs := failed.split()
	if warnings = append(dubious.errs, unread...); len(errs) > 0 {
		return warnings, errs
	}
	return warnings, nil
}

// checkState adds what is wrong with the state file of a policy. If the path leads to something else than a file, to a file
// that shaper has not written, or to one that this process may not read, as [unusable.split] sorts it, the policy has failed.
// All else is only dubious: whoever starts shaper may make the directory, or may write to it.
func checkState(p *policy.Policy, dubious, failed *unusable) {
	path := stateFile(p.Daemon.State)
	if path == "" {
		return
	}
	if err := state.Check(path); isDeniedFile(err) || errors.Is(err, state.ErrNoFile) || errors.Is(err, state.ErrForeign) {
		failed.add("daemon.state", err)
	} else {
		dubious.add("daemon.state", err)
	}
}

// split returns the errors of files that this process may not read, each with a note that says so, and all others.
func (u *unusable) split() (unread, others policy.Errors) {
	for i, e := range u.errs {
		if errors.Is(u.causes[i], fs.ErrPermission) {
			e.Problem += ", so it is not checked"
			unread = append(unread, e)
		} else {
			others = append(others, e)
		}
	}
	return unread, others
}

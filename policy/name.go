package policy

import (
	"path/filepath"
	"strings"
	"unicode"
)

// unixPrefix begins an address that is a unix socket: "unix:/run/x.sock", or "unix:@name" in
// the abstract namespace (unix(7)).
const unixPrefix = "unix:"

// UnixName returns the name of a unix socket, "/run/x.sock" or "@name". It returns false if
// the address is none.
func UnixName(address string) (name string, ok bool) { return strings.CutPrefix(address, unixPrefix) }

// isUnix reports whether an address is a unix socket.
func isUnix(address string) bool { return strings.HasPrefix(address, unixPrefix) }

const unixForm = `a unix socket is like "unix:/run/shaper/x.sock" or "unix:@name", with at most 107 bytes after unix:`

// bindsFiles reports whether the listener binds a unix socket with a file.
func (l *Listener) bindsFiles() bool {
	for _, s := range l.Listen {
		if name, ok := UnixName(s); ok && strings.HasPrefix(name, "/") {
			return true
		}
	}
	return false
}

// parseUnix reads "unix:/run/x.sock" or "unix:@name", and returns it in canonical form.
func parseUnix(s string) (string, error) {
	name, _ := UnixName(s)
	if strings.HasPrefix(name, "/") && name != filepath.Clean(name) && !strings.HasSuffix(name, "/") {
		name = filepath.Clean(name)
	}
	switch {
	case len(name) < 2 || !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@"):
		return "", complain(unixForm, "%q has neither an absolute path nor an abstract name", s)
	case strings.HasSuffix(name, "/"):
		return "", complain(unixForm, "%q is a directory", s)
	case len(name) > 107:
		return "", complain(unixForm, "%q is too long", s)
	case strings.ContainsFunc(name, unicode.IsControl):
		return "", complain(unixForm, "%q has a control character", s)
	}
	return unixPrefix + name, nil
}

// beside returns path as seen from the directory of file.
func beside(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

package policy

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unicode"
)

// UnixAccess is the key unix of a listener: who may connect to its unix sockets.
type UnixAccess struct {
	Mode FileMode `json:"mode"` // 0 is DefaultUnixMode
	// User and Group own the file: names or numbers. "" is that of the process.
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
}

// FileMode is the permissions of a file.
type FileMode fs.FileMode

// DefaultUnixMode lets the user and the group of the file connect, as for the control socket.
const DefaultUnixMode FileMode = 0o660

// String prints the mode as a policy file has it: "0660". It prints 0 as the default.
func (m FileMode) String() string {
	if m == 0 {
		m = DefaultUnixMode
	}
	return fmt.Sprintf("%04o", uint32(m))
}

// MarshalText is String.
func (m FileMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what String prints.
func (m *FileMode) UnmarshalText(text []byte) (err error) {
	*m, err = parseFileMode(string(text))
	return err
}

const (
	unixAccessForm = `a table like { mode = "0660", user = "www-data", group = "sms" }`
	fileModeForm   = `four octal digits, from "0001" to "0777"; who may write may connect`
	ownerForm      = `the name or the number of a user or a group, in quotes`
)

var unixAccessFields = []field[UnixAccess]{
	one("mode", fileModeForm, func(a *UnixAccess) *FileMode { return &a.Mode }, parseFileMode),
	one("user", ownerForm, func(a *UnixAccess) *string { return &a.User }, parseOwner),
	one("group", ownerForm, func(a *UnixAccess) *string { return &a.Group }, parseOwner),
}

// parseFileMode reads "0660".
func parseFileMode(s string) (FileMode, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || len(s) != 4 || n == 0 || n > 0o777 {
		return 0, complain(fileModeForm, "%q is not a mode", s)
	}
	return FileMode(n), nil
}

// parseOwner reads the name or the number of a user or a group.
func parseOwner(s string) (string, error) {
	if s == "" || len(s) > 32 || strings.ContainsFunc(s, func(r rune) bool { return r == ':' || r == '/' || !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return "", complain(ownerForm, "%q is neither", s)
	}
	return s, nil
}

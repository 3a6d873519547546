package daemon

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"shaper/conn"
	"shaper/fleet"
	"shaper/policy"
)

// A store is the section of a fleet, with what its files hold.
type store struct {
	conf   policy.Fleet
	reach  fleet.Config
	print  [sha256.Size]byte // of all files
	secret [32]byte          // what members hash keys with
}

// same reports whether members of one store can stay where the policy has the other.
func (s *store) same(o *store) bool { return s.print == o.print && reflect.DeepEqual(s.conf, o.conf) }

// isServerOf reports whether what one store has is in the other one, too: they may differ in how they are reached.
func (s *store) isServerOf(o *store) bool {
	return s.conf.Sentinel == o.conf.Sentinel && s.conf.Prefix == o.conf.Prefix && slices.Equal(s.conf.Address, o.conf.Address)
}

// readStore reads the files that the section of a fleet names. The error joins one for each file,
// which begins with the key of the policy.
func readStore(f policy.Fleet) (s store, warnings, err error) {
	s = store{conf: f, reach: fleet.Config{Addresses: f.Address, Sentinel: f.Sentinel, Username: f.Username, SentinelUsername: f.SentinelUsername,
		Prefix: f.Prefix, Deadline: time.Duration(f.Deadline)}}
	var errs []error
	hash := sha256.New()
	password := func(key, path string) (text string) {
		if path == "" {
			return ""
		}
		text, err := readPassword(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("fleet.%s.%s: %w", f.Name, key, err))
		}
		fmt.Fprintf(hash, "%s %q", key, text)
		return text
	}
	s.reach.Password = password("password_file", f.PasswordFile)
	s.reach.SentinelPassword = password("sentinel_password_file", f.SentinelPasswordFile)
	if f.TLS != nil {
		var tlsErr error
		s.reach.TLS, warnings, tlsErr = conn.ReadClientTLS("fleet."+f.Name, "tls", f.TLS, hash)
		if joined, ok := tlsErr.(interface{ Unwrap() []error }); ok {
			return s, warnings, errors.Join(append(errs, joined.Unwrap()...)...)
		}
	}
	hash.Sum(s.print[:0])
	// All members have the prefix and the password of the server; nobody else has the password.
	s.secret = sha256.Sum256([]byte("shaper fleet\x00" + f.Prefix + "\x00" + s.reach.Password))
	return s, warnings, errors.Join(errs...)
}

// readPassword returns the first line of a file.
func readPassword(path string) (string, error) {
	data, err := conn.ReadSecret(path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("%s: its first line is empty", path)
	}
	return line, nil
}

package policy

import (
	"slices"
	"time"

	"shaper/unit"
)

// Fleet is a section [fleet.NAME]: a store that several shapers share. The budgets of the classes
// with `shared` live there.
type Fleet struct {
	Name string `json:"name"`
	// Address holds "host:port" of the store. Several are a cluster, or sentinels if Sentinel is
	// set.
	Address []string `json:"address"`
	// Sentinel is the name of the master that the sentinels watch; "": there are none.
	Sentinel string `json:"sentinel,omitempty"`
	Username string `json:"username,omitempty"`
	// PasswordFile is the path of a file whose first line is the password; "": there is none.
	PasswordFile string `json:"password_file,omitempty"`
	// SentinelUsername and SentinelPasswordFile are the same for the sentinels, which have users of
	// their own.
	SentinelUsername     string     `json:"sentinel_username,omitempty"`
	SentinelPasswordFile string     `json:"sentinel_password_file,omitempty"`
	TLS                  *ClientTLS `json:"tls,omitempty"` // nil: no TLS
	// Prefix begins the name of each key in the store. All shapers of a fleet have the same.
	Prefix   string        `json:"prefix"`
	Fallback Fallback      `json:"fallback"`
	Deadline unit.Duration `json:"deadline"` // how long a call to the store may take
}

// Fallback says what leaves a shared class while its store is away. The zero Fallback is the share
// of this shaper: the rate divided by the members.
type Fallback struct {
	Stop bool      // nothing leaves
	Rate unit.Rate // a rate of its own; the zero Rate: the share
}

// String prints "share", "stop" or the rate.
func (f Fallback) String() string {
	switch {
	case f.Stop:
		return "stop"
	case f.Rate != (unit.Rate{}):
		return f.Rate.String()
	}
	return "share"
}

// MarshalText prints String.
func (f Fallback) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what String prints.
func (f *Fallback) UnmarshalText(text []byte) (err error) {
	*f, err = parseFallback(string(text))
	return err
}

const (
	storeForm    = `the address of a store is like "10.0.0.5:6379", or a list of them`
	masterForm   = `the name of a master that sentinels watch, like "mymaster"`
	userForm     = `the name of a user of the store`
	watcherForm  = `the name of a user of the sentinels`
	passwordForm = `the path of a file whose first line is the password`
	prefixesForm = `a text without spaces and braces, like "shaper:"`
	fallbackForm = `"share", "stop", or a rate like "10 messages/s"`
	fleetForm    = `the name of a section [fleet.NAME]`
)

var fleetFields = []field[Fleet]{
	require(many("address", storeForm, func(f *Fleet) *[]string { return &f.Address }, parseStore)),
	emptyAs("none", one("sentinel", masterForm, func(f *Fleet) *string { return &f.Sentinel }, plainText(masterForm))),
	emptyAs("none", one("username", userForm, func(f *Fleet) *string { return &f.Username }, plainText(userForm))),
	emptyAs("none", secretPath("password_file", passwordForm, func(f *Fleet) *string { return &f.PasswordFile })),
	emptyAs("none", one("sentinel_username", watcherForm, func(f *Fleet) *string { return &f.SentinelUsername }, plainText(watcherForm))),
	emptyAs("none", secretPath("sentinel_password_file", passwordForm, func(f *Fleet) *string { return &f.SentinelPasswordFile })),
	emptyAs("none", nested("tls", upstreamTLSForm, func(f *Fleet) **ClientTLS { return &f.TLS }, clientTLSFields, true)),
	one("prefix", prefixesForm, func(f *Fleet) *string { return &f.Prefix }, plainText(prefixesForm)),
	one("fallback", fallbackForm, func(f *Fleet) *Fallback { return &f.Fallback }, parseFallback),
	quantity("deadline", func(f *Fleet) *unit.Duration { return &f.Deadline }, parseDeadline),
}

// parseStore reads the address of a store.
func parseStore(s string) (string, error) {
	if s == "" || s[0] == ':' {
		return "", complain(storeForm, "%q names no host", s)
	}
	return hostPort(s, 1, storeForm)
}

// plainText returns a parser for a text of printable ASCII that a key of the store may contain.
func plainText(form string) func(string) (string, error) {
	return func(s string) (string, error) {
		odd := func(c byte) bool { return c <= ' ' || c > '~' || c == '{' || c == '}' }
		if s == "" || len(s) > 256 || slices.ContainsFunc([]byte(s), odd) {
			return "", complain(form, "%q cannot be used", s)
		}
		return s, nil
	}
}

// parseFallback reads what String prints.
func parseFallback(s string) (f Fallback, err error) {
	switch s {
	case "share":
		return f, nil
	case "stop":
		return Fallback{Stop: true}, nil
	}
	if f.Rate, err = unit.ParseRate(s); err != nil {
		return Fallback{}, complain(fallbackForm, "%q is none of these", s)
	}
	return f, nil
}

// maxDeadline bounds the deadline of a call: while one is on its way, nothing new comes from the
// store.
const maxDeadline = unit.Duration(10 * time.Second)

// parseDeadline reads the deadline of a call.
func parseDeadline(s string) (unit.Duration, error) {
	d, err := unit.ParseDuration(s)
	if err == nil && (d < unit.Duration(time.Millisecond) || d > maxDeadline) {
		err = complain("a duration from 1ms to 10s", "%q is out of bounds", s)
	}
	return d, err
}

package entry

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// MaxEntry bounds how many bytes a client sends for each step before its session begins.
const MaxEntry = 8192

// Entry is the server side of a protocol in which a client says where it wants to go. Its host
// feeds it bytes, does what it asks for, and writes what it returns. One goroutine at a time may
// use it.
type Entry interface {
	// Feed reads what the client has sent and the entry has not used yet. It returns how many
	// bytes it has used, and the next step. If both are zero, it needs more. After an error the
	// connection ends; before that, the host writes the reply of the step.
	Feed(data []byte) (used int, step Step, err error)
	// LoggedIn returns the answer to a login. If it was refused, the connection ends.
	LoggedIn(ok bool) (reply []byte)
	// Connected returns the answer to a request whose destination is reached, from a local
	// address, or whose relay is bound there. What follows is the session.
	Connected(local netip.AddrPort) (reply []byte)
	// Refused returns the answer to a request that leads nowhere. The connection ends.
	Refused(why Refusal) (reply []byte)
}

// Step is what the host does next.
type Step struct {
	Reply          []byte // write this first
	Login          bool   // then call LoggedIn
	User, Password string
	To             Destination // if it is not zero: connect there, and call Connected or Refused
	// Relay asks for a relay of datagrams: bind it, and call Connected with its address, or Refused.
	// From is where the client will send from; an address or a port that is zero is not known yet.
	Relay bool
	From  netip.AddrPort
	// Head is the head of the one request that the client has asked to forward, as the server at To gets
	// it. Once To is reached, the session reads it, then the body, and nothing more. nil: the client did
	// not ask for that.
	Head []byte
}

// IsZero reports whether there is nothing to do.
func (s Step) IsZero() bool { return s.Reply == nil && !s.Login && !s.Relay && s.To == Destination{} }

// Refusal is why a request leads nowhere.
type Refusal uint8

const (
	Failed      Refusal = iota // for any other reason
	Denied                     // the policy does not allow the destination
	Unknown                    // the name has no address
	NotServed                  // nobody listens there
	Unreachable                // no answer
	NoCommand                  // the policy has nothing that limits what the client asks for
	Malformed                  // nobody can tell where the request ends
)

// Destination is where a client wants to go: a name, or an address if Name is "".
type Destination struct {
	Name string // in lower case, without a final dot
	Addr netip.Addr
	Port uint16
}

// String prints the destination as "host:port".
func (d Destination) String() string {
	host := d.Name
	if host == "" {
		host = d.Addr.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(d.Port)))
}

// Upstream returns where a session to the destination leads, for a lookup. A name ends in a dot: it is
// the whole name that the client has said, so the search list of resolv.conf(5) does not apply.
// Otherwise a short name would reach what rules and deny lists know by its whole name.
func (d Destination) Upstream() string {
	if d.Name == "" {
		return d.String()
	}
	return net.JoinHostPort(d.Name+".", strconv.Itoa(int(d.Port)))
}

// DestinationOf reads a host and a port. It is strict: an address is written as RFC 4291 and
// dotted decimals have it, without a zone; a name has letters, digits, "-" and "_", and does not
// end in a number, since some resolvers take that for an address.
func DestinationOf(host string, port uint16) (d Destination, ok bool) {
	if port == 0 {
		return d, false
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return Destination{Addr: addr.Unmap(), Port: port}, addr.Zone() == ""
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if !isName(name) {
		return d, false
	}
	return Destination{Name: name, Port: port}, true
}

// isName reports whether s is a host name (RFC 1123, and underscores) that is no address in any
// spelling (inet_aton(3) knows decimal, octal and hexadecimal ones).
func isName(s string) bool {
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	last := labels[len(labels)-1]
	isHex := strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == ""
	return len(s) <= 253 && !isHex && strings.Trim(last, "0123456789") != ""
}

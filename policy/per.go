package policy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Per says what has a bucket of its own in a class, for example each client. The zero Per is
// one bucket for all.
type Per struct {
	By PerKind
	// IPv4 and IPv6 are the lengths of the prefixes that have a bucket each, for BySource.
	// They are 0 for all others.
	IPv4, IPv6 int
}

// PerKind is what distinguishes the buckets of a class.
type PerKind string

// The kinds of buckets.
const (
	BySource      PerKind = "source"      // the client's address, or its prefix
	BySourcePort  PerKind = "source-port" // the client's port, with any address
	ByConnection  PerKind = "connection"  // each connection, or client of datagrams, has a bucket
	ByDestination PerKind = "destination" // the upstream's address
)

const perForm = `"source", "source/24", "source/56", "source-port", "connection" or "destination"`

// hostPrefix is the length of the IPv6 prefix that counts as one client, unless a policy says
// otherwise. A client that has one address has all of its /64 (RFC 6177, RFC 7934).
const hostPrefix = 64

// parsePer reads the key per. A prefix length up to 32 is for IPv4, and IPv6 keeps its
// default. A longer one is for IPv6, and each IPv4 address has a bucket.
func parsePer(s string) (Per, error) {
	kind, length, prefixed := strings.Cut(s, "/")
	p := Per{By: PerKind(kind)}
	switch p.By {
	case BySource:
		p.IPv4, p.IPv6 = 32, hostPrefix
	case BySourcePort, ByConnection, ByDestination:
		if prefixed {
			return Per{}, complain(perForm, "only a source has a prefix, and %q is none", s)
		}
		return p, nil
	default:
		return Per{}, complain(perForm, "%q is not something that can have a bucket", s)
	}
	if !prefixed {
		return p, nil
	}
	n, err := strconv.Atoi(length)
	switch {
	case err != nil || n < 1 || n > 128 || strconv.Itoa(n) != length:
		return Per{}, complain(perForm, "%q is not the length of a prefix, from 1 to 128", length)
	case n <= 32:
		p.IPv4 = n
	default:
		p.IPv6 = n
	}
	return p, nil
}

// String prints it as a policy file has it, and the zero Per as "".
func (p Per) String() string {
	switch {
	case p.By == BySource && p.IPv4 < 32:
		return fmt.Sprintf("%s/%d", p.By, p.IPv4)
	case p.By == BySource && p.IPv6 != hostPrefix:
		return fmt.Sprintf("%s/%d", p.By, p.IPv6)
	}
	return string(p.By)
}

// MarshalText is String.
func (p Per) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what String prints.
func (p *Per) UnmarshalText(text []byte) (err error) {
	if *p = (Per{}); len(text) > 0 {
		*p, err = parsePer(string(text))
	}
	return err
}

// Key identifies a bucket of a class. It is comparable and contains no pointers.
type Key struct {
	addr [16]byte
	port uint16
}

// Key returns the key of the bucket of a connection.
func (p Per) Key(c Conn) (k Key) {
	switch p.By {
	case BySource:
		k.addr = p.prefix(c.Source.Addr()).Addr().As16()
	case BySourcePort:
		k.port = c.Source.Port()
	case ByConnection:
		binary.BigEndian.PutUint64(k.addr[:], c.Session)
	case ByDestination:
		k.addr = orZero(c.Destination.Addr()).As16()
	}
	return k
}

// Describe says for people whose bucket a connection uses. It returns "" for the zero Per.
func (p Per) Describe(c Conn) string {
	switch p.By {
	case BySource:
		if !c.Source.IsValid() {
			return "clients without an address, those of unix sockets"
		}
		return "source " + p.prefix(c.Source.Addr()).String()
	case BySourcePort:
		return fmt.Sprintf("source port %d", c.Source.Port())
	case ByConnection:
		return "this connection"
	case ByDestination:
		if !c.Destination.IsValid() {
			return "a destination that is not known"
		}
		return "destination " + c.Destination.Addr().Unmap().String()
	}
	return ""
}

// prefix returns the prefix that counts as one client and contains the address. IPv4 mapped
// into IPv6 counts as IPv4, and zones are ignored.
func (p Per) prefix(a netip.Addr) netip.Prefix {
	a = orZero(a).WithZone("")
	length := p.IPv4
	if a.Is6() {
		length = p.IPv6
	}
	prefix, _ := a.Prefix(length) // parsePer checks the length
	return prefix
}

// orZero returns an address unmapped, or the unspecified IPv6 address if it is not valid.
func orZero(a netip.Addr) netip.Addr {
	if !a.IsValid() {
		return netip.IPv6Unspecified()
	}
	return a.Unmap()
}

package policy

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Per says what has a bucket of its own in a class, for example each client. With several
// parts, each combination has one. The zero Per is one bucket for all.
type Per [3]PerPart

// A PerPart is one of the things that tell the buckets of a class apart. The zero PerPart is
// nothing.
type PerPart struct {
	By PerKind
	// IPv4 and IPv6 are the lengths of the prefixes that have a bucket each, for BySource.
	// They are 0 for all others.
	IPv4, IPv6 int
	// Name is the pattern of ByPath, or "" for any path; and the name of ByHeader. It is ""
	// for all others.
	Name string
}

// PerKind is what distinguishes the buckets of a class.
type PerKind string

// The kinds of buckets that connections tell apart.
const (
	BySource      PerKind = "source"      // the client's address, or its prefix
	BySourcePort  PerKind = "source-port" // the client's port, with any address
	ByConnection  PerKind = "connection"  // each connection, or client of datagrams, has a bucket
	ByDestination PerKind = "destination" // the upstream's address
	ByBind        PerKind = "bind"        // our own address towards the upstream
	ByUser        PerKind = "user"        // who has logged in at an entry
	ByServerName  PerKind = "server_name" // the name that an entry was asked for
)

// The kinds of buckets that messages tell apart. Their names are those of the keys of rules.
const (
	BySystemID   PerKind = "system_id"
	BySourceAddr PerKind = "source_addr"
	ByRecipient  PerKind = "recipient"
	ByHost       PerKind = "host"
	ByMethod     PerKind = "method"
	ByPath       PerKind = "path"
	ByHeader     PerKind = "header"
)

const perForm = `"source", "source/24", "source/56", "source-port", "connection", "destination", "bind", "user", "server_name", "system_id", "source_addr", ` +
	`"recipient", "host", "method", "path", "path:/v1/*/x" or "header:X-Api-Key", or a list of up to three`

// perKinds are the words of perForm that stand alone.
var perKinds = []string{
	string(BySource), string(BySourcePort), string(ByConnection), string(ByDestination), string(ByBind), string(ByUser), string(ByServerName),
	string(BySystemID), string(BySourceAddr), string(ByRecipient), string(ByHost), string(ByMethod), string(ByPath),
}

// hostPrefix is the length of the IPv6 prefix that counts as one client, unless a policy says
// otherwise. A client that has one address has all of its /64 (RFC 6177, RFC 7934).
const hostPrefix = 64

// perSeparator stands between the parts of a Per that is printed. No part contains it.
const perSeparator = ", "

// perField is the key per: a part, or a list of them.
var perField = field[Class]{
	name: "per", takes: texts | lists, form: perForm,
	set: func(c *Class, s string) error { return c.Per.add(s) },
	get: func(c *Class) string { return c.Per.String() },
}

// add adds a part, or several as String prints them.
func (p *Per) add(s string) error {
	for text := range strings.SplitSeq(s, perSeparator) {
		part, err := parsePart(text)
		if err != nil {
			return err
		}
		free := slices.Index(p[:], PerPart{})
		switch {
		case slices.ContainsFunc(p[:], part.isSame):
			return complain("name each thing once", "%q is named twice", text)
		case free < 0:
			return complain("a list of up to three", "%q is one too many", text)
		}
		p[free] = part
	}
	return nil
}

// isSame reports whether another part is the same thing: the case of the name of a field does not matter.
func (p PerPart) isSame(o PerPart) bool {
	return p == o || p.By == ByHeader && o.By == ByHeader && strings.EqualFold(p.Name, o.Name)
}

// parsePart reads one part of the key per. A prefix length up to 32 is for IPv4, and IPv6
// keeps its default. A longer one is for IPv6, and each IPv4 address has a bucket.
func parsePart(s string) (PerPart, error) {
	if name, ok := strings.CutPrefix(s, "header:"); ok {
		name, err := parseHeaderName(name)
		return PerPart{By: ByHeader, Name: name}, err
	}
	if pattern, ok := strings.CutPrefix(s, "path:"); ok {
		return PerPart{By: ByPath, Name: pattern}, checkPathPattern(pattern)
	}
	kind, length, prefixed := strings.Cut(s, "/")
	switch p := (PerPart{By: PerKind(kind)}); p.By {
	case BySource:
		return parsePrefixes(length, prefixed)
	case BySourcePort, ByConnection, ByDestination, ByBind, ByUser, ByServerName, BySystemID, BySourceAddr, ByRecipient, ByHost, ByMethod, ByPath:
		if prefixed {
			return PerPart{}, complain(perForm, "only a source has a prefix, and %q is none", s)
		}
		return p, nil
	}
	if name, _, found := strings.Cut(s, ":"); found {
		return PerPart{}, complain(perForm, "a colon follows %q", name) // and then maybe the value of a field of HTTP
	}
	form := perForm
	if ours := meant(s, perKinds); ours != "" {
		form = fmt.Sprintf("did you mean %q?", ours)
	}
	return PerPart{}, complain(form, "%q is not something that can have a bucket", s)
}

// parsePrefixes reads the length of the prefix of a source, if there is one.
func parsePrefixes(length string, prefixed bool) (PerPart, error) {
	p := PerPart{By: BySource, IPv4: 32, IPv6: hostPrefix}
	if !prefixed {
		return p, nil
	}
	n, err := strconv.Atoi(length)
	switch {
	case err != nil || n < 1 || n > 128 || strconv.Itoa(n) != length:
		return PerPart{}, complain(perForm, "%q is not the length of a prefix, from 1 to 128", length)
	case n <= 32:
		p.IPv4 = n
	default:
		p.IPv6 = n
	}
	return p, nil
}

// String prints the part as a policy file has it.
func (p PerPart) String() string {
	switch {
	case p.By == BySource && p.IPv4 < 32:
		return fmt.Sprintf("%s/%d", p.By, p.IPv4)
	case p.By == BySource && p.IPv6 != hostPrefix:
		return fmt.Sprintf("%s/%d", p.By, p.IPv6)
	case p.Name != "":
		return fmt.Sprintf("%s:%s", p.By, p.Name)
	}
	return string(p.By)
}

// String prints the parts as a policy file has them, with commas between them, and the zero
// Per as "".
func (p Per) String() string {
	var all []string
	for _, part := range p.parts() {
		all = append(all, part.String())
	}
	return strings.Join(all, perSeparator)
}

// MarshalText is String.
func (p Per) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what String prints.
func (p *Per) UnmarshalText(text []byte) error {
	if *p = (Per{}); len(text) == 0 {
		return nil
	}
	return p.add(string(text))
}

// Has reports whether one of the parts is of a kind.
func (p Per) Has(kind PerKind) bool {
	return slices.ContainsFunc(p.parts(), func(part PerPart) bool { return part.By == kind })
}

// ByMessage reports whether messages tell the buckets apart, not only connections.
func (p Per) ByMessage() bool {
	return slices.ContainsFunc(p.parts(), func(part PerPart) bool { return part.protocol() != "" })
}

// Fits reports whether connections or messages of a protocol have all that tells the buckets
// apart.
func (p Per) Fits(protocol Protocol) bool {
	return !slices.ContainsFunc(p.parts(), func(part PerPart) bool { return part.protocol() != "" && part.protocol() != protocol })
}

// Key identifies a bucket of a class. It is comparable and contains no pointers. If messages
// tell the buckets apart, or several things do, it is a hash with the Secret of the process.
type Key struct {
	addr [16]byte
	port uint16
}

// MarshalBinary returns the key as UnmarshalBinary reads it, for a file.
func (k Key) MarshalBinary() ([]byte, error) {
	return binary.BigEndian.AppendUint16(k.addr[:], k.port), nil
}

// UnmarshalBinary reads what MarshalBinary returns.
func (k *Key) UnmarshalBinary(data []byte) error {
	if len(data) != len(k.addr)+2 {
		return fmt.Errorf("a key has %d bytes, not %d", len(k.addr)+2, len(data))
	}
	copy(k.addr[:], data)
	k.port = binary.BigEndian.Uint16(data[len(k.addr):])
	return nil
}

// Numbers returns all of the key as three numbers, from which KeyOf makes it again.
func (k Key) Numbers() (a, b uint64, c uint16) {
	return binary.LittleEndian.Uint64(k.addr[:8]), binary.LittleEndian.Uint64(k.addr[8:]), k.port
}

// KeyOf returns the key that has these numbers.
func KeyOf(a, b uint64, c uint16) (k Key) {
	binary.LittleEndian.PutUint64(k.addr[:8], a)
	binary.LittleEndian.PutUint64(k.addr[8:], b)
	k.port = c
	return k
}

// Key returns the key of the bucket of a message on a connection. m may be nil, if nothing is known
// of the message. Key does not allocate.
func (p *Per) Key(c *Conn, m *Message) Key { return p.KeyWith(nil, c, m) }

// KeyWith is Key with a secret that several processes have; nil is the Secret of the process.
func (p *Per) KeyWith(s *[secretLength]byte, c *Conn, m *Message) Key {
	if s == nil {
		s = secret.Load()
	}
	if p[1].By != "" || p[0].protocol() != "" {
		return p.hash(s, c, m)
	}
	return p[0].connKey(s, c)
}

// Describe says for people whose bucket a connection uses, or a message on it. It returns ""
// for the zero Per.
func (p Per) Describe(c Conn, given Fields) string {
	var all []string
	for _, part := range p.parts() {
		all = append(all, part.describe(c, &given))
	}
	return strings.Join(all, " and ")
}

func (p PerPart) describe(c Conn, given *Fields) string {
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
	case ByBind:
		if !c.Bind.IsValid() {
			return "the address of bind whose bucket is free the soonest"
		}
		return "bind " + c.Bind.String()
	}
	name := string(p.By)
	if text, isName := p.nameOf(&c); isName {
		if text == "" {
			return "all connections without " + name
		}
		return fmt.Sprintf("%s %q", name, text)
	}
	if p.By == ByHeader {
		name = p.String()
	}
	switch text := p.textOf(given.Message()); {
	case text != nil:
		return fmt.Sprintf("%s %q", name, text)
	case p.By == ByPath && given.Path != "":
		return fmt.Sprintf("all paths that are not like %q", p.Name)
	}
	return "all messages without " + name
}

package policy

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"strings"
	"sync/atomic"
)

// secret is what keys are hashed with. So nobody outside the process can find two messages
// with the same key, or what a key stands for.
var secret atomic.Pointer[[secretLength]byte]

const secretLength = 32

func init() {
	var s [secretLength]byte
	rand.Read(s[:])
	secret.Store(&s)
}

// Secret returns what keys are hashed with, for another process that is to have the same keys.
func Secret() []byte { return bytes.Clone(secret.Load()[:]) }

// UseSecret makes this process hash keys with the secret of another process. Call it at the
// start, since all keys change. It does nothing if s is too short or too long.
func UseSecret(s []byte) {
	if len(s) == secretLength {
		secret.Store((*[secretLength]byte)(bytes.Clone(s)))
	}
}

// longestText is the longest text that is hashed as it is. A longer one is hashed before.
const longestText = 64

// hash returns the first 128 bits of the SHA-256 of a secret and of each part.
func (p *Per) hash(s *[secretLength]byte, c *Conn, m *Message) (k Key) {
	var buf [secretLength + len(Per{})*(4+longestText)]byte
	b := append(buf[:0], s[:]...)
	for i := range p.parts() {
		if part := &p[i]; part.protocol() == "" {
			of := part.connKey(s, c)
			b = append(b, of.addr[:]...)
			b = binary.BigEndian.AppendUint16(b, of.port)
		} else {
			b = part.appendText(b, m)
		}
	}
	sum := sha256.Sum256(b)
	k.addr = [16]byte(sum[:16])
	return k
}

// nameOf returns the name that a connection has for the part. isName is false if the part is
// something else.
func (p *PerPart) nameOf(c *Conn) (name string, isName bool) {
	switch p.By {
	case ByUser:
		return c.User, true
	case ByServerName:
		return c.ServerName, true
	}
	return "", false
}

// hashName returns the first 128 bits of the SHA-256 of the secret and of a name.
func hashName(s *[secretLength]byte, name string) [16]byte {
	var buf [secretLength + 256]byte // no user is longer
	sum := sha256.Sum256(append(append(buf[:0], s[:]...), name...))
	return [16]byte(sum[:16])
}

// parts returns the parts that are not zero.
func (p *Per) parts() []PerPart {
	n := 0
	for n < len(p) && p[n].By != "" {
		n++
	}
	return p[:n]
}

// appendText appends what a message says, so that no other text looks the same.
func (p *PerPart) appendText(b []byte, m *Message) []byte {
	var text []byte
	if m != nil {
		text = p.textOf(m)
	}
	if len(text) == 0 { // a field of SMPP that is not used is sent empty
		return binary.BigEndian.AppendUint32(b, ^uint32(0))
	}
	var lower [256]byte // names in the DNS are shorter
	if p.By == ByHost {
		text = toLower(lower[:0], text)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	if len(text) <= longestText {
		return append(b, text...)
	}
	sum := sha256.Sum256(text)
	return append(b, sum[:]...)
}

// textOf returns what a message says; empty if it says nothing, or if its path is not like the
// pattern. What the stars of the pattern stand for follows from the path, and the path from
// that.
func (p *PerPart) textOf(m *Message) []byte {
	switch p.By {
	case BySystemID:
		return m.SystemID
	case BySourceAddr:
		return m.SourceAddr
	case ByRecipient:
		return m.Recipient
	case ByHost:
		return m.Host
	case ByMethod:
		return m.Method
	case ByPath:
		if p.Name != "" && !matchPath(p.Name, m.Path) {
			return nil
		}
		return m.Path
	case ByHeader:
		return m.Header(p.Name)
	}
	return nil
}

// connKey returns the key of what a connection says.
func (p *PerPart) connKey(s *[secretLength]byte, c *Conn) (k Key) {
	switch p.By {
	case BySource:
		k.addr = p.prefix(c.Source.Addr()).Addr().As16()
	case BySourcePort:
		k.port = c.Source.Port()
	case ByConnection:
		binary.BigEndian.PutUint64(k.addr[:], c.Session)
	case ByDestination:
		k.addr = orZero(c.Destination.Addr()).As16()
	case ByBind:
		k.addr = orZero(c.Bind).As16()
	case ByUser, ByServerName:
		name, _ := p.nameOf(c)
		k.addr = hashName(s, name)
	}
	return k
}

// prefix returns the prefix that counts as one client and contains the address. IPv4 mapped
// into IPv6 counts as IPv4, and zones are ignored.
func (p *PerPart) prefix(a netip.Addr) netip.Prefix {
	a = orZero(a).WithZone("")
	length := p.IPv4
	if a.Is6() {
		length = p.IPv6
	}
	prefix, _ := a.Prefix(length) // parsePart checks the length
	return prefix
}

// orZero returns an address unmapped, or the unspecified IPv6 address if it is not valid.
func orZero(a netip.Addr) netip.Addr {
	if !a.IsValid() {
		return netip.IPv6Unspecified()
	}
	return a.Unmap()
}

// protocol returns the protocol whose messages have what the part looks at; "" if each
// connection has it.
func (p PerPart) protocol() Protocol {
	switch p.By {
	case BySystemID, BySourceAddr, ByRecipient:
		return SMPP
	case ByHost, ByMethod, ByPath, ByHeader:
		return HTTP
	}
	return ""
}

const pathPatternForm = `a path with one "*" or none in each segment, like "path:/v1/*/x"`

// checkPathPattern checks a pattern of a whole path. In each segment one "*" stands for any
// text without a slash.
func checkPathPattern(pattern string) error {
	if !strings.HasPrefix(pattern, "/") || strings.ContainsFunc(pattern, func(r rune) bool { return r <= ' ' || r == '?' }) {
		return complain(pathPatternForm, "%q cannot be a path", pattern)
	}
	for segment := range strings.SplitSeq(pattern, "/") {
		if strings.Count(segment, "*") > 1 {
			return complain(pathPatternForm, "%q has more than one \"*\" in a segment", pattern)
		}
	}
	return nil
}

// matchPath reports whether a path is like a pattern. It does not allocate.
func matchPath(pattern string, path []byte) bool {
	for more := true; more; {
		var like string
		var segment []byte
		var found bool
		like, pattern, more = strings.Cut(pattern, "/")
		if segment, path, found = bytes.Cut(path, []byte("/")); found != more || !matchSegment(like, segment) {
			return false
		}
	}
	return true
}

// matchSegment reports whether a segment of a path is like that of a pattern.
func matchSegment(like string, segment []byte) bool {
	before, behind, star := strings.Cut(like, "*")
	if !star {
		return string(segment) == like
	}
	n := len(segment)
	return n >= len(before)+len(behind) && string(segment[:len(before)]) == before && string(segment[n-len(behind):]) == behind
}

package policy

import (
	"bytes"
	"slices"
	"strings"
)

// Match reports whether the pattern matches a text. It does not allocate.
func (p Pattern) Match(text []byte) bool {
	s := string(p)
	before, behind := strings.HasPrefix(s, "*"), strings.HasSuffix(s, "*")
	s = strings.TrimSuffix(strings.TrimPrefix(s, "*"), "*")
	switch {
	case before && behind:
		return bytes.Contains(text, []byte(s))
	case before:
		return len(text) >= len(s) && string(text[len(text)-len(s):]) == s
	case behind:
		return len(text) >= len(s) && string(text[:len(s)]) == s
	}
	return string(text) == s
}

// Message is what rules and keys can look at in a message. What the message does not say is
// nil.
type Message struct {
	Path, Method, Host   []byte // only HTTP
	Headers              []byte // only HTTP: the lines of the fields
	HostField            []byte // only HTTP: what the client wrote in the field Host, if Headers says what shaper wrote; else nil
	SystemID, SourceAddr []byte // only SMPP
	Recipient            []byte // only SMPP
	DataCoding, ESMClass []byte // only SMPP: one byte each
}

// Header returns the value of the first field with a name, whatever the case of its letters;
// nil if there is none, or if it is empty. It does not allocate.
func (m *Message) Header(name string) []byte {
	if m.HostField != nil && strings.EqualFold(name, "host") {
		return m.HostField
	}
	for lines := m.Headers; len(lines) > 0; {
		var line []byte
		line, lines, _ = bytes.Cut(lines, []byte("\n"))
		if n := len(name); len(line) > n && line[n] == ':' && equalsFolded(line[:n], name) {
			return bytes.Trim(line[n+1:], " \t\r")
		}
	}
	return nil
}

// equalsFolded compares names of fields, which are ASCII, without regard to case.
func equalsFolded(text []byte, name string) bool {
	for i, c := range text {
		if lowerASCII(c) != lowerASCII(name[i]) {
			return false
		}
	}
	return true
}

// A MessageRule is a rule that looks at messages and that matches a connection with its
// other keys.
type MessageRule struct {
	Class  string
	Number int // number of the rule, from 1
	rule   *Rule
}

// Match reports whether the rule matches a message. It does not allocate.
func (m *MessageRule) Match(msg *Message) bool {
	r := m.rule
	if !anyMatch(r.Path, msg.Path, false) || !anyMatch(r.Method, msg.Method, false) || !anyMatch(r.Host, msg.Host, true) ||
		!anyMatch(r.SystemID, msg.SystemID, false) || !anyMatch(r.SourceAddr, msg.SourceAddr, false) || !anyMatch(r.Recipient, msg.Recipient, false) ||
		!anyOctet(r.DataCoding, msg.DataCoding) || !anyOctet(r.ESMClass, msg.ESMClass) {
		return false
	}
	for i := range r.Header {
		if h := &r.Header[i]; !anyMatch(h.Patterns, msg.Header(h.Name), false) {
			return false
		}
	}
	return true
}

// anyOctet reports whether a key has the value of a byte, or no value. No byte has none.
func anyOctet(values []Octet, b []byte) bool {
	return len(values) == 0 || len(b) > 0 && slices.Contains(values, Octet(b[0]))
}

// MessageRules are the rules that can decide for messages of a connection, in file order.
type MessageRules []MessageRule

// First returns the index of the rule that decides for a message. It returns -1 if none does,
// so that the message belongs to the class of the connection. It does not allocate.
func (all MessageRules) First(msg *Message) int {
	for i := range all {
		if all[i].Match(msg) {
			return i
		}
	}
	return -1
}

// anyMatch reports whether one of the patterns of a key matches a text, or the key has none.
// If folded is set, case does not matter.
func anyMatch(patterns []Pattern, text []byte, folded bool) bool {
	if len(patterns) == 0 {
		return true
	}
	var lower [256]byte // names in the DNS are shorter
	if folded {
		text = toLower(lower[:0], text)
	}
	for _, p := range patterns {
		if p.Match(text) {
			return true
		}
	}
	return false
}

// anyName is anyMatch for a name that a connection has. No pattern matches if it has none. It does not allocate.
func anyName(patterns []Pattern, name string, folded bool) bool {
	if name == "" {
		return len(patterns) == 0
	}
	var text [256]byte // no user is longer
	return anyMatch(patterns, append(text[:0], name...), folded)
}

// matchesEntry reports whether the rule matches what the client has said at an entry.
func (r *Rule) matchesEntry(c *Conn) bool {
	return anyName(r.User, c.User, false) && anyName(r.ServerName, c.ServerName, true)
}

// toLower appends text to dst with ASCII letters in lower case. It cuts the text if dst has
// no more capacity.
func toLower(dst, text []byte) []byte {
	for _, c := range text[:min(len(text), cap(dst))] {
		dst = append(dst, lowerASCII(c))
	}
	return dst
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

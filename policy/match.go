package policy

import (
	"bytes"
	"strings"
)

// Match reports whether a text is one that the pattern stands for.
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

// Message is what rules see of one.
type Message struct {
	Path, Method, Host   []byte // of HTTP
	SystemID, SourceAddr []byte // of SMPP
}

// A MessageRule is a rule that looks at messages, as a connection has it.
type MessageRule struct {
	Class  string
	Number int // of the rule, from 1
	rule   *Rule
}

// Match reports whether a message is one of the rule's. It does not allocate.
func (m *MessageRule) Match(msg *Message) bool {
	r := m.rule
	return anyMatch(r.Path, msg.Path, false) && anyMatch(r.Method, msg.Method, false) && anyMatch(r.Host, msg.Host, true) &&
		anyMatch(r.SystemID, msg.SystemID, false) && anyMatch(r.SourceAddr, msg.SourceAddr, false)
}

// MessageRules are the rules about messages that a connection has, in file order.
type MessageRules []MessageRule

// First returns the index of the rule that decides for a message; -1 says that none
// does, and that the message is of the connection's class. It does not allocate.
func (all MessageRules) First(msg *Message) int {
	for i := range all {
		if all[i].Match(msg) {
			return i
		}
	}
	return -1
}

// anyMatch reports whether one of the patterns of a key matches; a key without any
// takes everything.
func anyMatch(patterns []Pattern, text []byte, folded bool) bool {
	if len(patterns) == 0 {
		return true
	}
	var lower [256]byte // a name of the DNS is shorter
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

// toLower appends text in small letters of ASCII; what is longer than dst has room
// for is cut.
func toLower(dst, text []byte) []byte {
	for _, c := range text[:min(len(text), cap(dst))] {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

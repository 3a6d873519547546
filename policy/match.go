package policy

import (
	"bytes"
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

// Message is what rules can look at in a message.
type Message struct {
	Path, Method, Host   []byte // only HTTP
	SystemID, SourceAddr []byte // only SMPP
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
	return anyMatch(r.Path, msg.Path, false) && anyMatch(r.Method, msg.Method, false) && anyMatch(r.Host, msg.Host, true) &&
		anyMatch(r.SystemID, msg.SystemID, false) && anyMatch(r.SourceAddr, msg.SourceAddr, false)
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

// toLower appends text to dst with ASCII letters in lower case. It cuts the text if dst has
// no more capacity.
func toLower(dst, text []byte) []byte {
	for _, c := range text[:min(len(text), cap(dst))] {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

package policy

import "fmt"

// Fields are what rules look at in a message, as a person or a file says it; what is
// "" is not said.
type Fields struct {
	Path       string `json:"path,omitempty"`
	Method     string `json:"method,omitempty"`
	Host       string `json:"host,omitempty"`
	SystemID   string `json:"system_id,omitempty"`
	SourceAddr string `json:"source_addr,omitempty"`
}

// messageKeys are the keys of rules that look at messages.
var messageKeys = []struct {
	name     string
	folded   bool // compared without regard to case
	patterns func(*Rule) []Pattern
	field    func(*Fields) *string
}{
	{"path", false, func(r *Rule) []Pattern { return r.Path }, func(f *Fields) *string { return &f.Path }},
	{"method", false, func(r *Rule) []Pattern { return r.Method }, func(f *Fields) *string { return &f.Method }},
	{"host", true, func(r *Rule) []Pattern { return r.Host }, func(f *Fields) *string { return &f.Host }},
	{"system_id", false, func(r *Rule) []Pattern { return r.SystemID }, func(f *Fields) *string { return &f.SystemID }},
	{"source_addr", false, func(r *Rule) []Pattern { return r.SourceAddr }, func(f *Fields) *string { return &f.SourceAddr }},
}

// FieldNames returns the names of the fields, as a rule has them.
func FieldNames() (names []string) {
	for _, key := range messageKeys {
		names = append(names, key.name)
	}
	return names
}

// Set sets a field by its name.
func (f *Fields) Set(name, value string) {
	for _, key := range messageKeys {
		if key.name == name {
			*key.field(f) = value
		}
	}
}

// IsZero reports whether nothing is said of a message.
func (f Fields) IsZero() bool { return f == Fields{} }

// Message returns what rules see of the message.
func (f *Fields) Message() *Message {
	return &Message{Path: []byte(f.Path), Method: []byte(f.Method), Host: []byte(f.Host),
		SystemID: []byte(f.SystemID), SourceAddr: []byte(f.SourceAddr)}
}

// Misfit returns the first field that messages of a protocol do not have; "" for
// none.
func (f *Fields) Misfit(p Protocol) string {
	for _, key := range messageKeys {
		needs := HTTP
		if key.name == "system_id" || key.name == "source_addr" {
			needs = SMPP
		}
		if *key.field(f) != "" && p != needs {
			return key.name
		}
	}
	return ""
}

// compare returns why the message is of a rule that looks at messages, or the first
// reason against it.
func (f *Fields) compare(r *Rule) (hits []string, miss string) {
	if f.IsZero() {
		return nil, "it looks at messages, and nothing is said of one"
	}
	for _, key := range messageKeys {
		patterns, text := key.patterns(r), *key.field(f)
		switch {
		case len(patterns) == 0:
		case anyMatch(patterns, []byte(text), key.folded):
			hits = append(hits, fmt.Sprintf("%s %q is like %s", key.name, text, few(patterns)))
		case text == "":
			return nil, key.name + " is not said"
		default:
			return nil, fmt.Sprintf("%s %q is not like %s", key.name, text, few(patterns))
		}
	}
	return hits, ""
}

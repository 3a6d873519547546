package policy

import "fmt"

// Fields hold what rules look at in a message, as a person or a file gives it. A field that
// is "" is not given.
type Fields struct {
	Path       string `json:"path,omitempty"`
	Method     string `json:"method,omitempty"`
	Host       string `json:"host,omitempty"`
	SystemID   string `json:"system_id,omitempty"`
	SourceAddr string `json:"source_addr,omitempty"`
}

// messageKeys are the keys of a rule that look at messages.
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

// FieldNames returns the names of the fields, which are those of a rule's keys.
func FieldNames() (names []string) {
	for _, key := range messageKeys {
		names = append(names, key.name)
	}
	return names
}

// Set sets a field by its name. It ignores unknown names.
func (f *Fields) Set(name, value string) {
	for _, key := range messageKeys {
		if key.name == name {
			*key.field(f) = value
		}
	}
}

// IsZero reports whether no field is given.
func (f Fields) IsZero() bool { return f == Fields{} }

// Message returns the fields in the form that rules match.
func (f *Fields) Message() *Message {
	return &Message{Path: []byte(f.Path), Method: []byte(f.Method), Host: []byte(f.Host),
		SystemID: []byte(f.SystemID), SourceAddr: []byte(f.SourceAddr)}
}

// Misfit returns the name of the first field that is given and that messages of the protocol
// do not have, or "".
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

// compare returns the reasons why the message matches a rule that looks at messages, or else
// the first reason why not.
func (f *Fields) compare(r *Rule) (hits []string, miss string) {
	if f.IsZero() {
		return nil, "it looks at messages, and no message is given"
	}
	for _, key := range messageKeys {
		patterns, text := key.patterns(r), *key.field(f)
		switch {
		case len(patterns) == 0:
		case anyMatch(patterns, []byte(text), key.folded):
			hits = append(hits, fmt.Sprintf("%s %q is like %s", key.name, text, few(patterns)))
		case text == "":
			return nil, key.name + " is not given"
		default:
			return nil, fmt.Sprintf("%s %q is not like %s", key.name, text, few(patterns))
		}
	}
	return hits, ""
}

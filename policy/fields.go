package policy

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Fields hold what rules and keys look at in a message, as a person or a file gives it. A
// field that is "" is not given.
type Fields struct {
	Path       string `json:"path,omitempty"`
	Method     string `json:"method,omitempty"`
	Host       string `json:"host,omitempty"`
	Header     string `json:"header,omitempty"` // lines like "X-Api-Key: abc"
	SystemID   string `json:"system_id,omitempty"`
	SourceAddr string `json:"source_addr,omitempty"`
	Recipient  string `json:"recipient,omitempty"`
	DataCoding string `json:"data_coding,omitempty"` // decimal
	ESMClass   string `json:"esm_class,omitempty"`   // decimal
}

// messageKeys are the keys of a rule that look at messages, apart from header:NAME.
var messageKeys = []struct {
	name     string
	protocol Protocol // whose messages have it
	folded   bool     // compared without regard to case
	patterns func(*Rule) []Pattern
	field    func(*Fields) *string
}{
	{"path", HTTP, false, func(r *Rule) []Pattern { return r.Path }, func(f *Fields) *string { return &f.Path }},
	{"method", HTTP, false, func(r *Rule) []Pattern { return r.Method }, func(f *Fields) *string { return &f.Method }},
	{"host", HTTP, true, func(r *Rule) []Pattern { return r.Host }, func(f *Fields) *string { return &f.Host }},
	{"system_id", SMPP, false, func(r *Rule) []Pattern { return r.SystemID }, func(f *Fields) *string { return &f.SystemID }},
	{"source_addr", SMPP, false, func(r *Rule) []Pattern { return r.SourceAddr }, func(f *Fields) *string { return &f.SourceAddr }},
	{"recipient", SMPP, false, func(r *Rule) []Pattern { return r.Recipient }, func(f *Fields) *string { return &f.Recipient }},
	{"data_coding", SMPP, false, func(r *Rule) []Pattern { return octetPatterns(r.DataCoding) }, func(f *Fields) *string { return &f.DataCoding }},
	{"esm_class", SMPP, false, func(r *Rule) []Pattern { return octetPatterns(r.ESMClass) }, func(f *Fields) *string { return &f.ESMClass }},
}

// octetPatterns returns values as patterns of their decimal numbers.
func octetPatterns(values []Octet) (all []Pattern) {
	for _, v := range values {
		all = append(all, Pattern(strconv.Itoa(int(v))))
	}
	return all
}

// FieldNames returns the names of the fields, which are those of a rule's keys. There also is
// header:NAME for any name.
func FieldNames() (names []string) {
	for _, key := range messageKeys {
		names = append(names, key.name)
	}
	return names
}

// IsField reports whether a name is that of a field, or header:NAME.
func IsField(name string) bool {
	_, err := parseHeaderName(strings.TrimPrefix(name, headerKey))
	if strings.HasPrefix(name, headerKey) {
		return err == nil
	}
	for _, key := range messageKeys {
		if key.name == name {
			return true
		}
	}
	return false
}

// Set sets a field by its name, which may be header:NAME. It ignores unknown names, and a
// field of HTTP without a value.
func (f *Fields) Set(name, value string) {
	if header, ok := strings.CutPrefix(name, headerKey); ok && value != "" {
		f.Header += header + ": " + value + "\n"
	}
	for _, key := range messageKeys {
		if key.name == name {
			*key.field(f) = value
		}
	}
}

// Check returns an error if a field cannot be that of a message.
func (f *Fields) Check() error {
	for _, one := range []struct{ key, text string }{{"data_coding", f.DataCoding}, {"esm_class", f.ESMClass}} {
		if one.text == "" {
			continue
		}
		if _, err := parseOctet(one.text); err != nil {
			return complain("an integer from 0 to 255", "%s: %q is not the value of a byte", one.key, one.text)
		}
	}
	if strings.Contains(f.Path, "?") {
		return complain("the path without its query, which rules do not see", "%q has a query", f.Path)
	}
	if _, port, err := net.SplitHostPort(f.Host); err == nil {
		return complain("the host without its port, which rules do not see", "%q has the port %s", f.Host, port)
	}
	for line := range strings.Lines(f.Header) {
		name, _, found := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if _, err := parseHeaderName(name); err != nil || !found {
			return complain(`a field is like "X-Api-Key: abc"`, "%q is not a field", strings.TrimSuffix(line, "\n"))
		}
	}
	return nil
}

// IsZero reports whether no field is given.
func (f Fields) IsZero() bool { return f == Fields{} }

// Message returns the fields in the form that rules match.
func (f *Fields) Message() *Message {
	given := func(s string) []byte {
		if s == "" {
			return nil
		}
		return []byte(s)
	}
	octet := func(s string) []byte {
		n, err := strconv.ParseUint(s, 10, 8)
		if err != nil {
			return nil
		}
		return []byte{byte(n)}
	}
	return &Message{Path: given(f.Path), Method: given(f.Method), Host: given(f.Host), Headers: given(f.Header),
		SystemID: given(f.SystemID), SourceAddr: given(f.SourceAddr), Recipient: given(f.Recipient),
		DataCoding: octet(f.DataCoding), ESMClass: octet(f.ESMClass)}
}

// Misfit returns the name of the first field that is given and that messages of the protocol
// do not have, or "".
func (f *Fields) Misfit(p Protocol) string {
	for _, key := range messageKeys {
		if *key.field(f) != "" && p != key.protocol {
			return key.name
		}
	}
	if f.Header != "" && p != HTTP {
		return "header"
	}
	return ""
}

// A condition is a key of a rule that looks at messages.
type condition struct {
	name     string
	folded   bool // compared without regard to case
	patterns []Pattern
	text     func(*Fields) string
}

// conditions returns the keys of the rule that look at messages.
func (r *Rule) conditions() (all []condition) {
	for _, key := range messageKeys {
		if patterns := key.patterns(r); len(patterns) > 0 {
			all = append(all, condition{key.name, key.folded, patterns, func(f *Fields) string { return *key.field(f) }})
		}
	}
	for _, h := range r.Header {
		all = append(all, condition{headerKey + h.Name, false, h.Patterns, func(f *Fields) string { return string(f.Message().Header(h.Name)) }})
	}
	return all
}

// shown prints what the condition looks for, without what may be secret.
func (c *condition) shown() string {
	switch {
	case strings.HasPrefix(c.name, headerKey):
		return notShown
	case c.name == "path":
		return few(withoutQueries(c.patterns))
	}
	return few(c.patterns)
}

// compare returns the reasons why the message matches a rule that looks at messages, or else
// the first reason why not.
func (f *Fields) compare(r *Rule) (hits []string, miss string) {
	if f.IsZero() {
		return nil, "it looks at messages, and no message is given"
	}
	for _, key := range r.conditions() {
		switch text := key.text(f); {
		case anyMatch(key.patterns, []byte(text), key.folded):
			hits = append(hits, fmt.Sprintf("%s %q is like %s", key.name, text, few(key.patterns)))
		case text == "":
			return nil, key.name + " is not given"
		default:
			return nil, fmt.Sprintf("%s %q is not like %s", key.name, text, few(key.patterns))
		}
	}
	return hits, ""
}

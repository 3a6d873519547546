package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// Explanation is a [Decision] with its reasons.
type Explanation struct {
	Conn        Conn   `json:"conn"`
	Message     Fields `json:"message,omitzero"` // zero: it is about the connection
	Class       string `json:"class"`
	ReturnClass string `json:"return_class,omitempty"`
	Rule        int    `json:"rule"`           // number of the rule that decided, from 1; 0 is the listener's default
	File        string `json:"file,omitempty"` // of the policy
	Line        int    `json:"line,omitempty"`
	// Bucket says whose bucket of the class it is, ReturnBucket that of the other; ""
	// where there is one for all.
	Bucket       string `json:"bucket,omitempty"`
	ReturnBucket string `json:"return_bucket,omitempty"`
	// Why says what made the rule match.
	Why string `json:"why"`
	// Skipped are the rules before it, and why they did not match.
	Skipped []Skip `json:"skipped"`
	// Upstream is the one that Conn.Destination is an address of, and FailOver what a
	// session gets that cannot reach that address, and tries the next ones in turn. Who
	// asks sets them, where rules look at the destination and there are several.
	Upstream string        `json:"upstream,omitempty"`
	FailOver []Explanation `json:"fail_over,omitempty"`
}

// Skip is a rule that did not match.
type Skip struct {
	Rule int    `json:"rule"`
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// Explain says why Decide decides as it does, rule by rule: about a message where
// something is said of one, else about the connection.
func (c *Classifier) Explain(conn Conn, said Fields) Explanation {
	var msg *Message
	if !said.IsZero() {
		msg = said.Message()
	}
	d := c.Decide(conn, msg)
	e := Explanation{Conn: conn, Message: said, Class: d.Class, ReturnClass: d.ReturnClass, Rule: d.Rule, File: c.file, Skipped: []Skip{}}
	e.Bucket, e.ReturnBucket = c.per[e.Class].Describe(conn), c.per[e.ReturnClass].Describe(conn)
	l := c.listeners[conn.Listener]
	if l == nil {
		e.Why = fmt.Sprintf("there is no listener %q", conn.Listener)
		return e
	}
	for i := range c.rules {
		m := &c.rules[i]
		hits, miss := m.compare(l, conn, said)
		if i+1 == d.Rule {
			e.Line = m.rule.Line
			if e.Why = strings.Join(hits, ", "); e.Why == "" {
				e.Why = "it matches everything"
			}
			return e
		}
		e.Skipped = append(e.Skipped, Skip{i + 1, m.rule.Line, miss})
	}
	e.Why = fmt.Sprintf("no rule matches, so it is the class of listener %q", conn.Listener)
	return e
}

// compare returns the reasons for a match, or the first reason against it.
func (m *matcher) compare(l *listenerRules, conn Conn, said Fields) (hits []string, miss string) {
	r := m.rule
	if !m.appliesTo(l) {
		return nil, fmt.Sprintf("it is not for listener %q", conn.Listener)
	}
	if len(r.Listener) > 0 || len(r.Protocol) > 0 {
		hits = append(hits, fmt.Sprintf("it is for listener %q", conn.Listener))
	}
	for _, key := range []func() (string, bool){
		func() (string, bool) { return inPrefixes("source", r.Source, conn.Source.Addr()) },
		func() (string, bool) { return inPorts("source port", r.SourcePort, conn.Source.Port()) },
		func() (string, bool) { return inPrefixes("destination", r.Destination, conn.Destination.Addr()) },
		func() (string, bool) { return inPorts("port", r.Port, conn.Port) },
	} {
		why, ok := key()
		if !ok {
			return nil, why
		}
		if why != "" {
			hits = append(hits, why)
		}
	}
	if !r.looksAtMessages() {
		return hits, ""
	}
	of, miss := said.compare(r)
	return append(hits, of...), miss
}

// inPrefixes reports whether an address is in one of the prefixes, and says
// so; it says nothing where there is none.
func inPrefixes(what string, prefixes []netip.Prefix, addr netip.Addr) (why string, ok bool) {
	if len(prefixes) == 0 {
		return "", true
	}
	if !addr.IsValid() {
		return "the " + what + " is not known", false
	}
	addr = addr.Unmap().WithZone("")
	i := firstPrefix(prefixes, addr)
	if i < 0 {
		return fmt.Sprintf("%s %v is not in %s", what, addr, few(prefixes)), false
	}
	return fmt.Sprintf("%s %v is in %v", what, addr, prefixes[i]), true
}

func inPorts(what string, ranges []PortRange, port uint16) (why string, ok bool) {
	if len(ranges) == 0 {
		return "", true
	}
	if !inRanges(ranges, port) {
		return fmt.Sprintf("%s %d is not in %s", what, port, few(ranges)), false
	}
	return fmt.Sprintf("%s %d is in %s", what, port, few(ranges)), true
}

// String prints the decision, then the rules that did not match, then what becomes of
// a session that fails over.
func (e Explanation) String() string {
	var b strings.Builder
	e.writeDecision(&b)
	for _, s := range e.Skipped {
		fmt.Fprintf(&b, "  not rule %d (%s): %s\n", s.Rule, lineOf(e.File, s.Line), s.Why)
	}
	for _, other := range e.FailOver {
		fmt.Fprintf(&b, "  failed over to %s: ", other.Upstream)
		other.writeDecision(&b)
	}
	return b.String()
}

func (e Explanation) writeDecision(b *strings.Builder) {
	fmt.Fprintf(b, "class %s%s", orDash(e.Class), bucketText(e.Bucket))
	if e.ReturnClass != "" {
		fmt.Fprintf(b, ", back to the client class %s%s", e.ReturnClass, bucketText(e.ReturnBucket))
	}
	if e.Rule > 0 {
		fmt.Fprintf(b, ": rule %d (%s)", e.Rule, lineOf(e.File, e.Line))
	}
	fmt.Fprintf(b, ": %s\n", e.Why)
}

// A Route is where a rule of a listener leads, or what no rule matches.
type Route struct {
	Listener    string `json:"listener"`
	Rule        int    `json:"rule"` // its number, from 1; 0 is the listener's default
	File        string `json:"file"`
	Line        int    `json:"line,omitempty"`
	When        string `json:"when"` // what the rule asks for; "" for nothing
	Class       string `json:"class"`
	ReturnClass string `json:"return_class,omitempty"`
}

// String prints the class, and for what.
func (r Route) String() string {
	classes, when := "class "+r.Class, r.When
	if r.ReturnClass != "" {
		classes += ", back to the client class " + r.ReturnClass
	}
	if r.Rule == 0 {
		return classes + ": no rule matches"
	}
	if when == "" {
		when = "always"
	}
	return fmt.Sprintf("%s: rule %d (%s): %s", classes, r.Rule, lineOf(r.File, r.Line), when)
}

// Routes returns where the rules of each listener lead, in the order in which they
// are tried.
func Routes(p *Policy) (all []Route) {
	c := Compile(p)
	for _, l := range p.Listeners {
		at := c.listeners[l.Name]
		for i := range c.rules {
			m := &c.rules[i]
			if !m.appliesTo(at) {
				continue
			}
			back := m.rule.ReturnClass
			if back == "" {
				back = l.ReturnClass
			}
			all = append(all, Route{l.Name, i + 1, p.Path, m.rule.Line, m.rule.when(), m.rule.Class, back})
			if all[len(all)-1].When == "" {
				break // nothing gets past it
			}
		}
		if last := len(all) - 1; last < 0 || all[last].Listener != l.Name || all[last].When != "" {
			all = append(all, Route{Listener: l.Name, File: p.Path, Class: l.Class, ReturnClass: l.ReturnClass})
		}
	}
	return all
}

// when says what a rule asks for, besides the listener.
func (r *Rule) when() string {
	var all []string
	add := func(name string, n int, values string) {
		if n > 0 {
			all = append(all, name+" "+values)
		}
	}
	add("source", len(r.Source), few(r.Source))
	add("source_port", len(r.SourcePort), few(r.SourcePort))
	add("destination", len(r.Destination), few(r.Destination))
	add("port", len(r.Port), few(r.Port))
	for _, key := range messageKeys {
		patterns := key.patterns(r)
		add(key.name, len(patterns), few(patterns))
	}
	return strings.Join(all, "; ")
}

// lineOf says where a rule stands.
func lineOf(file string, line int) string {
	if file == "" {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("%s:%d", file, line)
}

func bucketText(whose string) string {
	if whose == "" {
		return ""
	}
	return ", the bucket of " + whose
}

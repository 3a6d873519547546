package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Explanation is a [Decision] with its reasons.
type Explanation struct {
	Conn        Conn   `json:"conn"`
	Class       string `json:"class"`
	ReturnClass string `json:"return_class,omitempty"`
	Rule        int    `json:"rule"` // number of the rule that decided, from 1; 0 is the listener's default
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

// Explain decides as Classify does, rule by rule, and says why.
func (c *Classifier) Explain(conn Conn) Explanation {
	e := c.decide(conn)
	e.Bucket, e.ReturnBucket = c.per[e.Class].Describe(conn), c.per[e.ReturnClass].Describe(conn)
	return e
}

func (c *Classifier) decide(conn Conn) Explanation {
	e := Explanation{Conn: conn, Skipped: []Skip{}}
	l := c.listeners[conn.Listener]
	if l == nil {
		e.Why = fmt.Sprintf("there is no listener %q", conn.Listener)
		return e
	}
	e.Class, e.ReturnClass = l.defaults.Class, l.defaults.ReturnClass
	for i := range c.rules {
		m := &c.rules[i]
		hits, miss := m.compare(l, conn)
		if miss != "" {
			e.Skipped = append(e.Skipped, Skip{i + 1, m.rule.Line, miss})
			continue
		}
		e.Rule, e.Line, e.Class = i+1, m.rule.Line, m.rule.Class
		if m.rule.ReturnClass != "" {
			e.ReturnClass = m.rule.ReturnClass
		}
		if e.Why = strings.Join(hits, ", "); e.Why == "" {
			e.Why = "it matches everything"
		}
		return e
	}
	e.Why = fmt.Sprintf("no rule matches, so it is the class of listener %q", conn.Listener)
	return e
}

// compare returns the reasons for a match, or the first reason against it.
func (m *matcher) compare(l *scope, conn Conn) (hits []string, miss string) {
	r := m.rule
	if !m.appliesTo(l) {
		return nil, fmt.Sprintf("it is not for listener %q", conn.Listener)
	}
	if r.looksAtMessages() {
		return nil, "it is for messages that it looks at"
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
	return hits, ""
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
	i := slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
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

// few prints the first of many values.
func few[V any](values []V) string {
	const most = 4
	if len(values) <= most {
		return list(values)
	}
	return fmt.Sprintf("%s and %d more", list(values[:most]), len(values)-most)
}

// String prints the decision, then the rules that did not match, then what becomes of
// a session that fails over.
func (e Explanation) String() string {
	var b strings.Builder
	e.writeDecision(&b)
	for _, s := range e.Skipped {
		fmt.Fprintf(&b, "  not rule %d (line %d): %s\n", s.Rule, s.Line, s.Why)
	}
	for _, other := range e.FailOver {
		fmt.Fprintf(&b, "  failed over to %s: ", other.Upstream)
		other.writeDecision(&b)
	}
	return b.String()
}

func (e Explanation) writeDecision(b *strings.Builder) {
	fmt.Fprintf(b, "class %s%s", orDash(e.Class), ofBucket(e.Bucket))
	if e.ReturnClass != "" {
		fmt.Fprintf(b, ", back to the client class %s%s", e.ReturnClass, ofBucket(e.ReturnBucket))
	}
	if e.Rule > 0 {
		fmt.Fprintf(b, ": rule %d (line %d)", e.Rule, e.Line)
	}
	fmt.Fprintf(b, ": %s\n", e.Why)
}

func ofBucket(whose string) string {
	if whose == "" {
		return ""
	}
	return ", the bucket of " + whose
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

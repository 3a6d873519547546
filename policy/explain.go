package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Explanation is a [Decision] with its reasons.
type Explanation struct {
	Conn        Conn   `json:"conn"`
	Message     Fields `json:"message,omitzero"` // zero if it is about the connection
	Class       string `json:"class"`
	ReturnClass string `json:"return_class,omitempty"`
	Rule        int    `json:"rule"`           // number of the rule that decides, from 1; 0 is the listener's default
	File        string `json:"file,omitempty"` // path of the policy, or of the file that has the rule
	Line        int    `json:"line,omitempty"` // where the rule begins; 0 without a rule
	// Bucket and ReturnBucket say whose bucket of Class and of ReturnClass it is. They are
	// "" if the class has one bucket for all.
	Bucket       string `json:"bucket,omitempty"`
	ReturnBucket string `json:"return_bucket,omitempty"`
	// Waits says in words that an item of Class waits that comes now; "" if it would not, or only for its turn. WaitsUntil is an
	// estimate of until when; zero if that is not known, or never. Holds are what holds it up, from its bucket and its own
	// class to the root. Only a daemon knows.
	Waits      string    `json:"waits,omitempty"`
	WaitsUntil time.Time `json:"waits_until,omitzero"`
	Holds      []Hold    `json:"holds,omitempty"`
	// Shared says which store has the budget of Class, and the state of that; "" if this process has it.
	// Only a daemon knows.
	Shared string `json:"shared,omitempty"`
	// Reactions are what Class, and those above it, do about the answers of the provider. The caller
	// of Explain sets them.
	Reactions []Reaction `json:"reactions,omitempty"`
	// Denied says that the listener is an entry and does not allow the destination, so that no session
	// begins. The caller of Explain sets it.
	Denied bool `json:"denied,omitempty"`
	// Why says why the rule matches.
	Why string `json:"why"`
	// Skipped are the rules before it, and why they do not match.
	Skipped []Skip `json:"skipped"`
	// Upstream is the upstream to which Conn.Destination belongs. FailOver is what a session
	// gets if it cannot reach that address and tries the next ones in turn. The caller of
	// Explain sets both if rules look at the destination and there are several addresses.
	Upstream string        `json:"upstream,omitempty"`
	FailOver []Explanation `json:"fail_over,omitempty"`
}

// Skip is a rule that does not match, and why.
type Skip struct {
	Rule int    `json:"rule"`
	File string `json:"file,omitempty"`
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// Hold is what holds an item up in one class.
type Hold struct {
	Class string    `json:"class"`
	Cause string    `json:"cause"`          // one of those that package shaper has: "limit", "pause"
	Until time.Time `json:"until,omitzero"` // zero: nobody knows
	Text  string    `json:"text"`           // in words
}

// String prints the class, what holds an item up there, and until when.
func (h Hold) String() string {
	text := fmt.Sprintf("class %s: %s", h.Class, h.Text)
	if !h.Until.IsZero() {
		text += ", until " + h.Until.Local().Format("2006-01-02 15:04:05.000")
	}
	return text
}

// Explain returns the decision of Decide and its reasons, rule by rule. If given is not zero,
// it explains the decision about that message, else the one about the connection.
func (c *Classifier) Explain(conn Conn, given Fields) Explanation {
	var msg *Message
	if !given.IsZero() {
		msg = given.Message()
	}
	d := c.Decide(conn, msg)
	e := Explanation{Conn: conn, Message: given, Class: d.Class, ReturnClass: d.ReturnClass, Rule: d.Rule, File: c.file, Skipped: []Skip{}}
	e.Bucket, e.ReturnBucket = c.per[e.Class].Describe(conn, given), c.per[e.ReturnClass].Describe(conn, given)
	l := c.listeners[conn.Listener]
	if l == nil {
		e.Why = fmt.Sprintf("there is no listener %q", conn.Listener)
		return e
	}
	for i := range c.rules {
		m := &c.rules[i]
		hits, miss := m.compare(l, conn, given)
		if i+1 == d.Rule {
			e.File, e.Line = m.rule.File, m.rule.Line
			if e.Why = strings.Join(hits, ", "); e.Why == "" {
				e.Why = "it matches everything"
			}
			return e
		}
		e.Skipped = append(e.Skipped, Skip{i + 1, m.rule.File, m.rule.Line, miss})
	}
	e.Why = fmt.Sprintf("no rule matches, so it is the class of listener %q", conn.Listener)
	return e
}

// compare returns the reasons why the rule matches, or else the first reason why not.
func (m *matcher) compare(l *listenerRules, conn Conn, given Fields) (hits []string, miss string) {
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
		func() (string, bool) { return isLike("user", r.User, conn.User, false) },
		func() (string, bool) { return isLike("server_name", r.ServerName, conn.ServerName, true) },
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
	of, miss := given.compare(r)
	return append(hits, of...), miss
}

// inPrefixes reports whether an address is in one of the prefixes, and says why or why not.
// Without prefixes it returns "" and true.
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

// inPorts is inPrefixes for ports.
func inPorts(what string, ranges []PortRange, port uint16) (why string, ok bool) {
	if len(ranges) == 0 {
		return "", true
	}
	if port == 0 {
		return "the " + what + " is not known", false
	}
	if !inRanges(ranges, port) {
		return fmt.Sprintf("%s %d is not in %s", what, port, few(ranges)), false
	}
	return fmt.Sprintf("%s %d is in %s", what, port, few(ranges)), true
}

// isLike is inPrefixes for names.
func isLike(what string, patterns []Pattern, name string, folded bool) (why string, ok bool) {
	switch {
	case len(patterns) == 0:
		return "", true
	case name == "":
		return "the " + what + " is not known", false
	case !anyName(patterns, name, folded):
		return fmt.Sprintf("%s %q is not like %s", what, name, few(patterns)), false
	}
	return fmt.Sprintf("%s %q is like %s", what, name, few(patterns)), true
}

// String prints the decision, then the rules that do not match, then the decisions about a
// session that fails over.
func (e Explanation) String() string {
	var b strings.Builder
	e.writeDecision(&b)
	for _, s := range e.Skipped {
		fmt.Fprintf(&b, "  not rule %d (%s): %s\n", s.Rule, lineOf(s.File, s.Line), s.Why)
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
	if e.Denied {
		b.WriteString("  refused: the listener does not allow the destination\n")
	}
	if e.Shared != "" {
		fmt.Fprintf(b, "  its budget is in the %s\n", e.Shared)
	}
	for _, r := range e.Reactions {
		fmt.Fprintf(b, "  answers: %v\n", r)
	}
	if e.Waits != "" {
		fmt.Fprintf(b, "  %s\n", e.Waits)
	}
	for _, h := range e.Holds {
		fmt.Fprintf(b, "    %v\n", h)
	}
}

// A Route says which classes a rule of a listener leads to, or the listener itself if no rule
// matches.
type Route struct {
	Listener    string `json:"listener"`
	Rule        int    `json:"rule"` // number of the rule, from 1; 0 is the listener's default
	File        string `json:"file"`
	Line        int    `json:"line,omitempty"`
	When        string `json:"when"` // the conditions of the rule; "" if there are none
	Class       string `json:"class"`
	ReturnClass string `json:"return_class,omitempty"`
}

// String prints the classes and the conditions.
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

// Routes returns the routes of each listener, in the order in which they are tried.
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
			all = append(all, Route{l.Name, i + 1, m.rule.File, m.rule.Line, m.rule.when(), m.rule.Class, back})
			if all[len(all)-1].When == "" {
				break // it matches everything
			}
		}
		if last := len(all) - 1; last < 0 || all[last].Listener != l.Name || all[last].When != "" {
			all = append(all, Route{Listener: l.Name, File: p.Path, Class: l.Class, ReturnClass: l.ReturnClass})
		}
	}
	return all
}

// when prints the conditions of a rule, except those about the listener, without what may be secret.
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
	add("user", len(r.User), few(r.User))
	add("server_name", len(r.ServerName), few(r.ServerName))
	for _, key := range r.conditions() {
		add(key.name, len(key.patterns), key.shown())
	}
	return strings.Join(all, "; ")
}

// bucketText says which bucket is meant, or "".
func bucketText(whose string) string {
	if whose == "" {
		return ""
	}
	return ", the bucket of " + whose
}

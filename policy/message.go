package policy

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"time"

	"shaper/unit"
)

// LengthPrefix is how the length before a message of ISO 8583 is written.
type LengthPrefix string

// The length prefixes.
const (
	Binary2 LengthPrefix = "binary2" // two bytes, big-endian
	ASCII4  LengthPrefix = "ascii4"  // four ASCII digits
	BCD2    LengthPrefix = "bcd2"    // four digits in two bytes
	VML     LengthPrefix = "vml"     // Visa's: two bytes, big-endian, and two that are reserved
)

// OnThrottle is for how long a class pauses when its provider says "too fast", and
// not how long that holds.
type OnThrottle struct {
	Pause unit.Duration `json:"pause"` // at first; it doubles each time until something succeeds
	Max   unit.Duration `json:"max"`   // at most, also where the provider says more
}

// DefaultOnThrottle is a second, which is what most providers count in, and at most a
// minute, for which some block.
var DefaultOnThrottle = OnThrottle{Pause: unit.Duration(time.Second), Max: unit.Duration(time.Minute)}

// String prints it as a policy file has it, and the zero OnThrottle as "".
func (o OnThrottle) String() string {
	if o == (OnThrottle{}) {
		return ""
	}
	return fmt.Sprintf("{ pause = %q, max = %q }", o.Pause, o.Max)
}

var onThrottleFields = []field[OnThrottle]{
	quantity("pause", func(o *OnThrottle) *unit.Duration { return &o.Pause }, parseWait),
	quantity("max", func(o *OnThrottle) *unit.Duration { return &o.Max }, parseWait),
}

// Pattern is what a rule compares a text of a message with: a text, before or
// behind which a "*" stands for any other. Hosts are compared without regard to case,
// everything else as it was sent.
type Pattern string

const patternForm = `a text, with a "*" as its first or last letter for whatever else is there, like "/v1/*"`

func parsePattern(s string) (Pattern, error) {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return "", complain(patternForm, "%q is in no message", s)
	}
	if middle := strings.TrimSuffix(strings.TrimPrefix(s, "*"), "*"); strings.Contains(middle, "*") {
		return "", complain(patternForm, "%q has a \"*\" in its midst", s)
	}
	return Pattern(s), nil
}

// parseHost is parsePattern of what is not compared by case.
func parseHost(s string) (Pattern, error) { return parsePattern(strings.ToLower(s)) }

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

// looksAtHTTP and looksAtSMPP report whether the rule asks for what only messages of
// a protocol have.
func (r *Rule) looksAtHTTP() bool { return len(r.Path)+len(r.Method)+len(r.Host) > 0 }
func (r *Rule) looksAtSMPP() bool { return len(r.SystemID)+len(r.SourceAddr) > 0 }

// looksAtMessages reports whether the rule is about messages, not sessions.
func (r *Rule) looksAtMessages() bool { return r.looksAtHTTP() || r.looksAtSMPP() }

// hasWhatItLooksAt reports whether the protocol has what the rule asks messages for.
func (r *Rule) hasWhatItLooksAt(p Protocol) bool {
	return (!r.looksAtHTTP() || p == HTTP) && (!r.looksAtSMPP() || p == SMPP)
}

// Messages returns the rules that look at messages, and whose other keys a
// connection matches, in file order, up to the rule that decides for the connection
// itself: the first of them that matches a message has it.
func (c *Classifier) Messages(conn Conn) (rules MessageRules) {
	l := c.listeners[conn.Listener]
	if l == nil {
		return nil
	}
	before := c.Classify(conn).Rule
	for _, i := range c.onMessages {
		if before > 0 && i >= before {
			break
		}
		m := &c.rules[i]
		if _, ok := inPrefixes("", m.rule.Source, conn.Source.Addr()); ok && m.match(l, &conn) {
			rules = append(rules, MessageRule{m.decision.Class, i + 1, m.rule})
		}
	}
	return rules
}

// Decide returns the classes of a message of a connection; a nil message is of no rule
// that looks at messages. What classifies many messages of one connection asks
// Classify and Messages once, and [MessageRules.First] for each message: it is the same.
func (c *Classifier) Decide(conn Conn, msg *Message) Decision {
	d := c.Classify(conn)
	if msg == nil {
		return d
	}
	rules := c.Messages(conn)
	if i := rules.First(msg); i >= 0 {
		d.Class, d.Rule = rules[i].Class, rules[i].Number
	}
	return d
}

// messages checks what a listener says about how its messages are framed.
func (c *checker) messages(key string, l *Listener) {
	if !c.sound(key + ".protocol") {
		return
	}
	if l.Protocol != HTTP && c.given(key+".host") {
		c.wrong(key+".host", fmt.Sprintf("the listener is for %s, and only http has a Host", l.Protocol), `leave it out, or set protocol = "http"`)
	}
	if l.Protocol == ISO8583 {
		return
	}
	for _, name := range []string{"length_prefix", "length_includes_itself", "header_length"} {
		if c.given(key + "." + name) {
			c.wrong(key+"."+name, fmt.Sprintf("%s has no length before its messages", l.Protocol), `leave it out, or set protocol = "iso8583"`)
		}
	}
}

// messageRule checks a rule that looks at messages.
func (c *checker) messageRule(key string, r *Rule) {
	switch {
	case r.looksAtHTTP() && r.looksAtSMPP():
		c.wrong(key, "no message has both what HTTP and what SMPP has", "path, method and host, or system_id and source_addr")
	case r.looksAtMessages() && r.ReturnClass != "":
		c.wrong(key+".return_class", "a rule that looks at messages is about what goes to the upstream", "leave it out; the listener has one")
	}
}

// feedback checks that answers are looked at where a class says what to make of them.
func (c *checker) feedback(key string, class *Class) {
	if class.Rate.Kind() == unit.Messages {
		if o := class.OnThrottle; o.Pause > o.Max && c.sound(key+".on_throttle") {
			c.wrong(key+".on_throttle.pause", fmt.Sprintf("%q is longer than max, %q", o.Pause, o.Max), "at most max")
		}
		return
	}
	for _, name := range []string{"in_flight", "on_throttle", "adapt"} {
		if at := key + "." + name; c.given(at) && c.sound(at) {
			c.wrong(at, fmt.Sprintf("the class counts %v, and only messages are answered", class.Rate.Kind()), "leave it out, or set a rate in messages")
		}
	}
}

// answers checks that what a class makes of answers is about messages that have some.
func (c *checker) answers(class *Class, carried map[Protocol]bool) {
	key := join("class", class.Name)
	for _, p := range []Protocol{ISO8583, Lines} {
		only := carried[p] && !carried[SMPP] && !carried[HTTP]
		noSignal := fmt.Sprintf("no message of %s says \"too fast\"", p)
		c.unanswered(key+".in_flight", class.InFlight > 0 && c.carries[class.Name][p], fmt.Sprintf("which message of %s answers which is not known", p))
		c.unanswered(key+".on_throttle", class.OnThrottle != (OnThrottle{}) && only, noSignal)
		c.unanswered(key+".adapt", class.Adapt && only, noSignal)
	}
}

// warnAnswers warns of an in_flight that bounds nothing, since only children carry
// messages, of which none has an answer.
func (c *checker) warnAnswers(class *Class, carried map[Protocol]bool) {
	if class.InFlight > 0 && len(carried) > 0 && !carried[SMPP] && !carried[HTTP] {
		c.warn(join("class", class.Name)+".in_flight", "it bounds nothing: only messages of smpp and http have answers", "leave it out")
	}
}

func (c *checker) unanswered(key string, wrong bool, problem string) {
	if wrong && c.sound(key) {
		c.wrong(key, problem, "leave it out; smpp and http have it")
	}
}

// readsAnswers reports whether the class makes anything of answers.
func (c *Class) readsAnswers() bool {
	return c.InFlight > 0 || c.OnThrottle != (OnThrottle{}) || c.Adapt
}

// carriedBeneath returns, by class that reads answers, the protocols of what it limits
// with all beneath it.
func (c *checker) carriedBeneath() map[string]map[Protocol]bool {
	all := map[string]map[Protocol]bool{}
	for i := range c.p.Classes {
		for class := &c.p.Classes[i]; class != nil; class = c.above(class) {
			if !class.readsAnswers() {
				continue
			}
			if all[class.Name] == nil {
				all[class.Name] = map[Protocol]bool{}
			}
			maps.Copy(all[class.Name], c.carries[c.p.Classes[i].Name])
		}
	}
	return all
}

// queue checks that one connection can hold the queue of a class that messages wait in.
// One of http has a single message that waits, so there it is never one that fills a queue.
func (c *checker) queue(class *Class) {
	key := join("class", class.Name) + ".queue"
	if !c.sound(key) || class.Rate.Kind() == unit.Connections {
		return
	}
	const most = int64(ConnectionHolds / MessageHolds)
	for _, p := range []Protocol{SMPP, ISO8583, Lines} {
		switch {
		case !c.carries[class.Name][p]:
			continue
		case class.Queue.Items.N > most:
			c.wrong(key, fmt.Sprintf("%q is more than a connection of %s holds, %d", class.Queue, p, most), fmt.Sprintf("at most %d messages", most))
		case class.Queue.Bytes > ConnectionHolds:
			c.wrong(key, fmt.Sprintf("%q is more than a connection of %s holds, %v", class.Queue, p, ConnectionHolds), fmt.Sprintf("at most %v", ConnectionHolds))
		default:
			continue
		}
		return
	}
}

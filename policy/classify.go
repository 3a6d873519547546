package policy

import (
	"net/netip"

	"github.com/gaissmai/bart"
)

// Conn is what is known of a connection, or of a client's datagrams, when it
// is classified.
type Conn struct {
	Listener string         `json:"listener"` // the name of the listener it came in through
	Source   netip.AddrPort `json:"source"`   // the client
	Port     uint16         `json:"port"`     // the port that the client connected to
	// Destination is the upstream's address. The zero AddrPort says that it is
	// not known, or that there is none, as with Echo; then no rule with a
	// destination matches. See [Classifier.NeedsDestination].
	Destination netip.AddrPort `json:"destination,omitzero"`
	// Session tells connections apart that are alike in all else. No rule looks at
	// it, but a class may have a bucket for each (ByConnection).
	Session uint64 `json:"-"`
}

// Decision says which classes a connection belongs to.
type Decision struct {
	Class       string // towards the upstream
	ReturnClass string // back to the client; "" does not shape it
	Rule        int    // number of the rule that decided, from 1; 0 is the listener's default
}

// Classifier is the compiled rules of a policy. It does not change and may be
// used concurrently.
type Classifier struct {
	file       string // of the policy
	listeners  map[string]*listenerRules
	per        map[string]Per // by class, of those with a bucket for each key
	rules      []matcher
	bySource   bart.Table[int32] // the rules with a source, by number of their node
	nodes      []sourceNode      // from 1
	more       []portIndex       // from 1
	anySource  portIndex         // the rules with neither a source nor a listener
	onMessages []int             // the rules that look at messages, ascending; they are among no others
}

// A scope is a listener as its rules see it.
type listenerRules struct {
	number          int
	defaults        Decision
	needDestination bool
	anySource       portIndex // the rules with this listener's name and without a source
}

// keyed returns what the classes that have more than one bucket have them for.
func keyed(p *Policy) map[string]Per {
	per := map[string]Per{}
	for _, class := range p.Classes {
		if class.Per != (Per{}) {
			per[class.Name] = class.Per
		}
	}
	return per
}

// byDestination reports whether one of two classes has a bucket per destination.
func (c *Classifier) byDestination(class, back string) bool {
	return c.per[class].By == ByDestination || c.per[back].By == ByDestination
}

// A matcher is a rule ready to be asked.
type matcher struct {
	applies          []bool      // by number of listener; nil: to all
	port, sourcePort []PortRange // nil: every port
	destination      *bart.Lite  // nil: every destination
	decision         Decision
	rule             *Rule
}

// A sourceNode stands for a prefix of some rule. A lookup finds the longest
// prefix of an address; from there the wider ones are reached one by one, so
// that each rule is stored once, however deep prefixes are nested. It is kept
// at 16 bytes: with very many prefixes, Classify costs what its cache misses do.
type sourceNode struct {
	rule       int32 // the first rule that has the prefix
	more       int32 // where in Classifier.more the others are, ascending; 0: there are none
	wider      int32 // the node of the next wider prefix; 0: there is none
	firstWider int32 // the first rule of all that are wider; often saves the way there
}

// Compile makes a classifier of a policy that Load returned. Time and memory
// are proportional to the number of prefixes and rules.
func Compile(p *Policy) *Classifier {
	c := &Classifier{file: p.Path, listeners: make(map[string]*listenerRules, len(p.Listeners)), per: keyed(p), rules: make([]matcher, len(p.Rules))}
	for i, l := range p.Listeners {
		c.listeners[l.Name] = &listenerRules{number: i, defaults: Decision{Class: l.Class, ReturnClass: l.ReturnClass},
			needDestination: c.byDestination(l.Class, l.ReturnClass)}
	}
	c.nodes, c.more = make([]sourceNode, 1), make([]portIndex, 1)
	for i := range p.Rules {
		rule := &p.Rules[i]
		c.rules[i] = compileRule(i, rule, p.Listeners)
		if c.rules[i].destination != nil || c.byDestination(rule.Class, rule.ReturnClass) {
			c.needDestination(&c.rules[i])
		}
		if rule.looksAtMessages() {
			c.onMessages = append(c.onMessages, i)
			continue
		}
		if len(rule.Source) == 0 {
			c.addAnySource(i, rule)
		}
		for _, prefix := range rule.Source {
			c.addSource(prefix, i, rule.Port)
		}
	}
	c.linkSources()
	return c
}

func compileRule(i int, rule *Rule, listeners []Listener) matcher {
	m := matcher{
		port: rule.Port, sourcePort: rule.SourcePort,
		decision: Decision{rule.Class, rule.ReturnClass, i + 1}, rule: rule,
	}
	if len(rule.Listener) > 0 || len(rule.Protocol) > 0 || rule.looksAtMessages() {
		m.applies = make([]bool, len(listeners))
		for i, l := range listeners {
			m.applies[i] = matches(rule.Listener, l.Name) && matches(rule.Protocol, l.Protocol) && rule.hasWhatItLooksAt(l.Protocol)
		}
	}
	if len(rule.Destination) > 0 {
		m.destination = new(bart.Lite)
		for _, prefix := range rule.Destination {
			m.destination.Insert(prefix)
		}
	}
	return m
}

func (c *Classifier) needDestination(m *matcher) {
	for _, l := range c.listeners {
		if m.appliesTo(l) {
			l.needDestination = true
		}
	}
}

func (c *Classifier) addAnySource(i int, rule *Rule) {
	if len(rule.Listener) == 0 {
		c.anySource.add(i, rule.Port)
	}
	for _, name := range rule.Listener {
		if l := c.listeners[name]; l != nil {
			l.anySource.add(i, rule.Port)
		}
	}
}

func (c *Classifier) addSource(prefix netip.Prefix, rule int, ports []PortRange) {
	n, found := c.bySource.Get(prefix)
	if !found {
		c.bySource.Insert(prefix, int32(len(c.nodes)))
		c.nodes = append(c.nodes, sourceNode{rule: int32(rule)})
		return
	}
	node := &c.nodes[n]
	if int(node.rule) == rule { // it names the prefix twice
		return
	}
	if node.more == 0 {
		node.more = int32(len(c.more))
		c.more = append(c.more, portIndex{})
	}
	c.more[node.more].add(rule, ports)
}

// linkSources leads from each prefix to the next wider one. Sorted, a prefix
// comes after all that are wider.
func (c *Classifier) linkSources() {
	for prefix, n := range c.bySource.AllSorted() {
		node := &c.nodes[n]
		node.firstWider = int32(len(c.rules))
		for wider, w := range c.bySource.Supernets(prefix) {
			if wider != prefix {
				node.wider, node.firstWider = w, min(c.nodes[w].rule, c.nodes[w].firstWider)
				break
			}
		}
	}
}

// NeedsDestination reports whether a rule for that listener asks where a
// connection goes, or a class that it leads to. Then the caller has to find an address of the upstream
// before it classifies; otherwise it need not.
func (c *Classifier) NeedsDestination(listener string) bool {
	l := c.listeners[listener]
	return l != nil && l.needDestination
}

// Classify returns the classes of a connection: those of the first rule in
// file order that matches, else those of the listener. A rule without a return
// class leaves the listener's in force. IPv4 addresses mapped into IPv6 are
// taken as IPv4, zones are ignored. A listener that the policy does not have
// gives the zero Decision. Classify does not allocate.
func (c *Classifier) Classify(conn Conn) Decision {
	l := c.listeners[conn.Listener]
	if l == nil {
		return Decision{}
	}
	source := conn.Source.Addr().Unmap()
	first := len(c.rules)
	for n, _ := c.bySource.Lookup(source); n != 0; n = c.nodes[n].wider {
		node := &c.nodes[n]
		if i := int(node.rule); i < first && c.rules[i].match(l, &conn) {
			first = i
		} else if node.more != 0 {
			first = c.firstMatch(&c.more[node.more], first, l, &conn)
		}
		if int(node.firstWider) >= first {
			break
		}
	}
	first = c.firstMatch(&c.anySource, first, l, &conn)
	first = c.firstMatch(&l.anySource, first, l, &conn)
	if first == len(c.rules) {
		return l.defaults
	}
	d := c.rules[first].decision
	if d.ReturnClass == "" {
		d.ReturnClass = l.defaults.ReturnClass
	}
	return d
}

// firstMatch returns the first of the rules that matches and stands before
// another one, or that other one. Their sources are known to match.
func (c *Classifier) firstMatch(rules *portIndex, before int, l *listenerRules, conn *Conn) int {
	if rules.byPort != nil {
		before = c.firstOf(rules.byPort[conn.Port], before, l, conn)
	}
	if len(rules.others) > 0 {
		before = c.firstOf(rules.others, before, l, conn)
	}
	return before
}

func (c *Classifier) firstOf(rules []int, before int, l *listenerRules, conn *Conn) int {
	for _, i := range rules {
		if i >= before {
			break
		}
		if c.rules[i].match(l, conn) {
			return i
		}
	}
	return before
}

// match asks for everything but the source.
func (m *matcher) match(l *listenerRules, conn *Conn) bool {
	return m.appliesTo(l) &&
		(len(m.port) == 0 || inRanges(m.port, conn.Port)) &&
		(len(m.sourcePort) == 0 || inRanges(m.sourcePort, conn.Source.Port())) &&
		(m.destination == nil || m.destination.Contains(conn.Destination.Addr().Unmap()))
}

func (m *matcher) appliesTo(l *listenerRules) bool { return m.applies == nil || m.applies[l.number] }

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
		if (len(m.rule.Source) == 0 || firstPrefix(m.rule.Source, conn.Source.Addr()) >= 0) && m.match(l, &conn) {
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

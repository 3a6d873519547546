package policy

import (
	"net/netip"

	"github.com/gaissmai/bart"
)

// Conn is what rules can look at in a connection, or in the datagrams of a client.
type Conn struct {
	Listener string         `json:"listener"` // name of the listener that accepted it
	Source   netip.AddrPort `json:"source"`   // the client
	Port     uint16         `json:"port"`     // the port that the client connected to
	// Destination is the address of the upstream. The zero AddrPort means that it is not
	// known, or that there is none, as for Echo; then no rule with a destination matches.
	// See [Classifier.NeedsDestination].
	Destination netip.AddrPort `json:"destination,omitzero"`
	// Bind is our own address towards the upstream, one of those of the listener. No rule looks
	// at it, but a class may have a bucket for each (ByBind).
	Bind netip.Addr `json:"bind,omitzero"`
	// User is who has logged in at an entry, and ServerName the name that it was asked for, in
	// lower case. They are "" if there is none.
	User       string `json:"user,omitempty"`
	ServerName string `json:"server_name,omitempty"`
	// Session tells apart connections that are otherwise equal. No rule looks at it, but a
	// class may have a bucket for each connection (ByConnection).
	Session uint64 `json:"-"`
}

// Decision holds the classes of a connection.
type Decision struct {
	Class       string // of the direction upstream
	ReturnClass string // of the direction downstream; "" does not shape it
	Rule        int    // number of the rule that decides, from 1; 0 is the listener's default
}

// Classifier holds the compiled rules of a policy. It does not change after Compile, so any
// goroutine may use it.
type Classifier struct {
	file      string // path of the policy
	listeners map[string]*listenerRules
	per       map[string]Per // by class, only classes with a bucket for each key
	rules     []matcher      // in file order

	// Indexes of the rules that look only at connections.
	bySource  bart.Table[int32] // rules with a source: from a prefix to its index in nodes
	nodes     []sourceNode      // from 1
	more      []portIndex       // from 1; see sourceNode
	anySource portIndex         // rules without a source and without a listener

	onMessages []int // the rules that look at messages, ascending; in none of the indexes
}

// listenerRules is what the compiled rules need of one listener.
type listenerRules struct {
	index           int // in Policy.Listeners
	protocol        Protocol
	relays          bool // it relays datagrams of SOCKS clients
	defaults        Decision
	bindsBoth       bool // the destination says which of our addresses a session can have
	needDestination bool
	needBind        bool
	anySource       portIndex // rules that name this listener and have no source
}

// perOf returns Per by class, for classes with a bucket for each key.
func perOf(p *Policy) map[string]Per {
	per := map[string]Per{}
	for _, class := range p.Classes {
		if class.Per != (Per{}) {
			per[class.Name] = class.Per
		}
	}
	return per
}

// need notes what a connection has to say because the listener leads to a class and a return class:
// what tells the buckets of each apart.
func (l *listenerRules) need(class, back Per) {
	byBind := class.Has(ByBind) || back.Has(ByBind)
	l.needBind = l.needBind || byBind
	l.needDestination = l.needDestination || class.Has(ByDestination) || back.Has(ByDestination) || l.bindsBoth && byBind
}

// A matcher is a compiled rule.
type matcher struct {
	applies          []bool      // by index of the listener; nil applies to all
	port, sourcePort []PortRange // nil matches every port
	destination      *bart.Lite  // nil matches every destination
	decision         Decision
	rule             *Rule
}

// A sourceNode holds the rules that have one prefix as a source. A lookup finds the longest
// prefix that holds an address, and then follows the links to wider prefixes. So each rule is
// stored once for each of its prefixes, even if prefixes are nested. A node has only 16
// bytes, because with very many prefixes the time of Classify is the time of its cache misses.
type sourceNode struct {
	rule       int32 // the first rule that has the prefix
	more       int32 // index in Classifier.more of the other rules; 0 if there are none
	wider      int32 // index of the node of the next wider prefix; 0 if there is none
	firstWider int32 // the first rule of all wider prefixes; often it saves following wider
}

// Compile compiles the rules of a policy that Load returned. It takes time and memory in
// proportion to the number of prefixes and rules.
func Compile(p *Policy) *Classifier {
	c := &Classifier{file: p.Path, listeners: make(map[string]*listenerRules, len(p.Listeners)), per: perOf(p), rules: make([]matcher, len(p.Rules))}
	for i, l := range p.Listeners {
		rules := &listenerRules{
			index: i, protocol: l.Protocol, relays: l.relays(), bindsBoth: l.bindsBoth(),
			defaults: Decision{Class: l.Class, ReturnClass: l.ReturnClass},
		}
		rules.need(c.per[l.Class], c.per[l.ReturnClass])
		c.listeners[l.Name] = rules
	}
	c.nodes, c.more = make([]sourceNode, 1), make([]portIndex, 1)
	for i := range p.Rules {
		rule := &p.Rules[i]
		c.rules[i] = compileRule(i, rule, p.Listeners)
		c.noteNeeds(&c.rules[i])
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

// compileRule compiles rule number i+1.
func compileRule(i int, rule *Rule, listeners []Listener) matcher {
	m := matcher{
		port: rule.Port, sourcePort: rule.SourcePort,
		decision: Decision{rule.Class, rule.ReturnClass, i + 1}, rule: rule,
	}
	if len(rule.Listener) > 0 || len(rule.Protocol) > 0 || rule.looksAtMessages() || rule.looksAtEntries() {
		m.applies = make([]bool, len(listeners))
		for i, l := range listeners {
			m.applies[i] = matches(rule.Listener, l.Name) && matches(rule.Protocol, l.Protocol) && rule.hasWhatItLooksAt(&l)
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

// noteNeeds notes what a rule needs to know of the connections of its listeners.
func (c *Classifier) noteNeeds(m *matcher) {
	class, back := c.per[m.rule.Class], c.per[m.rule.ReturnClass]
	if m.destination == nil && class == (Per{}) && back == (Per{}) {
		return // most rules end here, and there may be many
	}
	for _, l := range c.listeners {
		if m.appliesTo(l) {
			l.needDestination = l.needDestination || m.destination != nil
			l.need(class, back)
		}
	}
}

// addAnySource adds a rule without a source to the indexes.
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

// addSource adds a rule to the node of one of its sources.
func (c *Classifier) addSource(prefix netip.Prefix, rule int, ports []PortRange) {
	n, found := c.bySource.Get(prefix)
	if !found {
		c.bySource.Insert(prefix, int32(len(c.nodes)))
		c.nodes = append(c.nodes, sourceNode{rule: int32(rule)})
		return
	}
	node := &c.nodes[n]
	if int(node.rule) == rule { // the rule has the prefix twice
		return
	}
	if node.more == 0 {
		node.more = int32(len(c.more))
		c.more = append(c.more, portIndex{})
	}
	c.more[node.more].add(rule, ports)
}

// linkSources links the node of each prefix to that of the next wider one. AllSorted returns
// wider prefixes first.
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

// NeedsDestination reports whether a rule for the listener, or a class that it can lead to,
// depends on the destination of a connection. Then the caller has to set Conn.Destination to
// an address of the upstream before it classifies.
func (c *Classifier) NeedsDestination(listener string) bool {
	l := c.listeners[listener]
	return l != nil && l.needDestination
}

// NeedsBind reports whether a class that a listener can lead to has a bucket for each address of
// its bind. Then the caller has to set Conn.Bind before it classifies.
func (c *Classifier) NeedsBind(listener string) bool {
	l := c.listeners[listener]
	return l != nil && l.needBind
}

// Classify returns the classes of a connection: those of the first rule in file order that
// matches, or else those of the listener. If the rule has no return class, that of the
// listener applies. IPv4 addresses mapped into IPv6 count as IPv4, and zones are ignored. If
// the policy does not have the listener, Classify returns the zero Decision. It does not
// allocate.
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

// firstMatch returns the first of the rules that matches and stands before the rule before. If there
// is none, it returns before. The caller knows that the sources of the rules match.
func (c *Classifier) firstMatch(rules *portIndex, before int, l *listenerRules, conn *Conn) int {
	if rules.byPort != nil {
		before = c.firstOf(rules.byPort[conn.Port], before, l, conn)
	}
	if len(rules.others) > 0 {
		before = c.firstOf(rules.others, before, l, conn)
	}
	return before
}

// firstOf is firstMatch for an ascending list of rules.
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

// match reports whether the rule matches, except for its source, which it does not check.
func (m *matcher) match(l *listenerRules, conn *Conn) bool {
	return m.appliesTo(l) &&
		(len(m.port) == 0 || inRanges(m.port, conn.Port)) &&
		(len(m.sourcePort) == 0 || inRanges(m.sourcePort, conn.Source.Port())) &&
		(m.destination == nil || m.destination.Contains(conn.Destination.Addr().Unmap())) &&
		(!m.rule.looksAtEntries() || m.rule.matchesEntry(conn))
}

// appliesTo reports whether the rule applies to connections of the listener.
func (m *matcher) appliesTo(l *listenerRules) bool { return m.applies == nil || m.applies[l.index] }

// HasListener reports whether the policy has a listener of the same name and protocol, or a SOCKS listener of that name
// that relays the datagrams which as stands for. A listener of another protocol has other clients: its rules say nothing
// about the clients of as.
func (c *Classifier) HasListener(as *Listener) bool {
	l := c.listeners[as.Name]
	return l != nil && (l.protocol == as.Protocol || l.relays && as.Protocol == UDP)
}

// Messages returns, in file order, the rules that can decide for a message of the
// connection: those that look at messages, match the connection with their other keys, and
// stand before the rule that decides for the connection. The first of them that matches a
// message decides for it.
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

// Decide returns the classes of a message of a connection. For a nil message it returns
// those of the connection. To classify many messages of one connection, call Classify and
// Messages once, and then [MessageRules.First] for each message; the result is the same.
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

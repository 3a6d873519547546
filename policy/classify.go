package policy

import (
	"net/netip"
	"slices"

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
	listeners  map[string]*scope
	per        map[string]Per // by class, of those with a bucket for each key
	rules      []matcher
	bySource   bart.Table[int32] // the rules with a source, by number of their node
	nodes      []sourceNode      // from 1
	more       []portIndex       // from 1
	anySource  portIndex         // the rules with neither a source nor a listener
	onMessages []int             // the rules that look at messages, ascending; they are among no others
}

// A scope is a listener as its rules see it.
type scope struct {
	number          int
	defaults        Decision
	needDestination bool
	anySource       portIndex // the rules with this listener's name and without a source
}

// A portIndex holds rules by the port that they ask for, so that one of very many
// is found at once. All its lists are ascending.
type portIndex struct {
	byPort map[uint16][]int
	others []int // that are in none of those lists
}

// maxIndexed bounds the ports for which a rule is found by port: it takes an entry
// for each. A rule with more of them is among the others.
const maxIndexed = 64

// add adds a rule, which may be the one that was added last.
func (x *portIndex) add(rule int, ports []PortRange) {
	if !indexed(ports) {
		x.others = appendRule(x.others, rule)
		return
	}
	if x.byPort == nil {
		x.byPort = map[uint16][]int{}
	}
	for _, r := range ports {
		for port := int(r.First); port <= int(r.Last); port++ {
			x.byPort[uint16(port)] = appendRule(x.byPort[uint16(port)], rule)
		}
	}
}

// indexed reports whether a rule with such ports is found by port.
func indexed(ports []PortRange) bool {
	n := 0
	for _, r := range ports {
		n += int(r.Last-r.First) + 1
	}
	return 0 < n && n <= maxIndexed
}

// appendRule appends a rule unless it is the last one already, as where it names a
// prefix or a port twice.
func appendRule(rules []int, rule int) []int {
	if n := len(rules); n > 0 && rules[n-1] == rule {
		return rules
	}
	return append(rules, rule)
}

// has reports whether a rule with such ports is there.
func (x *portIndex) has(rule int, ports []PortRange) bool {
	rules := x.others
	if indexed(ports) {
		rules = x.byPort[ports[0].First]
	}
	_, found := slices.BinarySearch(rules, rule)
	return found
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
	rule  int32 // the first rule that has the prefix
	more  int32 // where in Classifier.more the others are, ascending; 0: there are none
	wider int32 // the node of the next wider prefix; 0: there is none
	ahead int32 // the first rule of all that are wider; often saves the way there
}

// Compile makes a classifier of a policy that Load returned. Time and memory
// are proportional to the number of prefixes and rules.
func Compile(p *Policy) *Classifier {
	c := &Classifier{file: p.Path, listeners: make(map[string]*scope, len(p.Listeners)), per: keyed(p), rules: make([]matcher, len(p.Rules))}
	for i, l := range p.Listeners {
		c.listeners[l.Name] = &scope{number: i, defaults: Decision{Class: l.Class, ReturnClass: l.ReturnClass},
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
		node.ahead = int32(len(c.rules))
		for wider, w := range c.bySource.Supernets(prefix) {
			if wider != prefix {
				node.wider, node.ahead = w, min(c.nodes[w].rule, c.nodes[w].ahead)
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
		if int(node.ahead) >= first {
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
func (c *Classifier) firstMatch(rules *portIndex, before int, l *scope, conn *Conn) int {
	if rules.byPort != nil {
		before = c.firstOf(rules.byPort[conn.Port], before, l, conn)
	}
	if len(rules.others) > 0 {
		before = c.firstOf(rules.others, before, l, conn)
	}
	return before
}

func (c *Classifier) firstOf(rules []int, before int, l *scope, conn *Conn) int {
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
func (m *matcher) match(l *scope, conn *Conn) bool {
	return m.appliesTo(l) &&
		(len(m.port) == 0 || inRanges(m.port, conn.Port)) &&
		(len(m.sourcePort) == 0 || inRanges(m.sourcePort, conn.Source.Port())) &&
		(m.destination == nil || m.destination.Contains(conn.Destination.Addr().Unmap()))
}

func (m *matcher) appliesTo(l *scope) bool { return m.applies == nil || m.applies[l.number] }

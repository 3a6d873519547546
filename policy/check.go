package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"shaper/unit"
)

// A checker holds a policy against itself: names that are used exist, and
// every limit can hold where it is used.
type checker struct {
	*report
	p         *Policy
	classes   map[string]*Class
	listeners map[string]*Listener
	carries   map[string]map[Protocol]bool // by class: the protocols of what it limits
	depth     map[string]int               // by class; see depthOf
}

// check reports what cannot work, and leaves out what would only follow from
// a mistake that is reported already. It returns what it knows, for warn.
func check(r *report, p *Policy) *checker {
	c := &checker{r, p, map[string]*Class{}, map[string]*Listener{}, map[string]map[Protocol]bool{}, map[string]int{}}
	for i := range p.Classes {
		c.classes[p.Classes[i].Name] = &p.Classes[i]
		c.carries[p.Classes[i].Name] = map[Protocol]bool{}
	}
	for i := range p.Listeners {
		c.listeners[p.Listeners[i].Name] = &p.Listeners[i]
	}
	if len(p.Listeners) == 0 && len(p.TC) == 0 && !c.badUnder("listener") && !c.badUnder("tc") {
		c.wrong("listener", "there is none, so nothing would be shaped", "at least one section [listener.NAME]")
	}
	c.parents()
	for i := range p.Classes {
		c.class(&p.Classes[i])
	}
	for i := range p.Listeners {
		c.listener(&p.Listeners[i])
	}
	c.sockets()
	for i := range p.Rules {
		c.rule(i, &p.Rules[i])
	}
	carried := c.carriedBeneath()
	for i := range p.Classes {
		c.overflow(&p.Classes[i])
		c.answers(&p.Classes[i], carried[p.Classes[i].Name])
		c.queue(&p.Classes[i])
	}
	c.kernel()
	return c
}

// given reports whether the file has the key.
func (c *checker) given(key string) bool {
	_, ok := c.at[key]
	return ok
}

// badUnder reports whether something is wrong with a section.
func (c *checker) badUnder(section string) bool {
	for key := range c.bad {
		if strings.HasPrefix(key, section) {
			return true
		}
	}
	return false
}

// class checks what a class says about itself.
func (c *checker) class(class *Class) {
	key := join("class", class.Name)
	if !c.sound(key + ".rate") {
		return
	}
	kind := class.Rate.Kind()
	if c.sound(key+".algorithm", key+".burst") {
		c.burst(key+".burst", class)
	}
	if c.sound(key+".algorithm", key+".window", key+".headroom") {
		c.window(key, class)
	}
	if problem, allowed := misfit(class.Queue, kind); problem != "" && c.sound(key+".queue") {
		c.wrong(key+".queue", problem, allowed)
	}
	c.keys(key, class)
	c.feedback(key, class)
	c.competes(class)
}

func (c *checker) burst(key string, class *Class) {
	kind := class.Rate.Kind()
	switch {
	case class.Burst.IsZero():
	case !class.Algorithm.HasBurst():
		c.wrong(key, string(class.Algorithm)+" has no burst", `leave it out, or set algorithm = "token" or "gcra"`)
	case class.Burst.Kind != kind:
		c.wrong(key, fmt.Sprintf("%q counts %v, and the rate %q counts %v", class.Burst, class.Burst.Kind, class.Rate, kind),
			"a burst in "+kind.String())
	}
}

// misfit says why a queue cannot hold what a rate of that kind lets wait.
func misfit(q Queue, rate unit.Kind) (problem, allowed string) {
	switch of := q.Items.Kind; {
	case rate == unit.Connections && q.Items.N == 0:
		return fmt.Sprintf("%q is a size, and waiting connections have none", q), "a queue in connections or items"
	case q.Items.N == 0, of == unit.Items, of == rate, of == unit.Packets && rate == unit.Bytes:
		return "", ""
	case rate == unit.Bytes:
		return fmt.Sprintf("%q counts %v, and the rate counts bytes", q, of), "a queue in bytes, packets or items"
	case rate == unit.Packets:
		return fmt.Sprintf("%q counts %v, and the rate counts packets", q, of), "a queue in packets, items or bytes"
	default:
		return fmt.Sprintf("%q counts %v, and the rate counts %v", q, of, rate), fmt.Sprintf("a queue in %v or items", rate)
	}
}

// halfClose checks that a listener whose sessions have no directions to end says nothing
// of it.
func (c *checker) halfClose(key string, l *Listener) {
	if at := key + ".half_close_timeout"; l.Protocol == UDP && c.given(at) && c.sound(at, key+".protocol") {
		c.wrong(at, "the listener is for udp, and datagrams do not say that they end", "leave it out; idle_timeout ends the session")
	}
}

// listener checks what a listener refers to.
func (c *checker) listener(l *Listener) {
	key := join("listener", l.Name)
	c.messages(key, l)
	c.halfClose(key, l)
	if c.exists(key+".class", l.Class) {
		c.use(key+".class", l.Class, l, "")
	}
	if l.ReturnClass != "" || c.given(key+".return_class") {
		if c.exists(key+".return_class", l.ReturnClass) {
			c.useBack(key+".return_class", l.ReturnClass, l, "")
		}
	}
	c.tls(l)
	if !c.sound(key+".upstream", key+".bind") || !l.Bind.IsValid() {
		return
	}
	for i, s := range l.Upstream {
		e, _ := endpointOf(s)
		addr, err := netip.ParseAddr(e.host)
		if err == nil && addr.Unmap().Is4() != l.Bind.Is4() {
			c.wrong(item(key+".upstream", i), fmt.Sprintf("%q cannot be reached from the address %v of bind", s, l.Bind),
				"both are IPv4, or both are IPv6")
		}
	}
}

// rule checks what a rule refers to, and its class for each listener that the
// rule can match.
func (c *checker) rule(i int, rule *Rule) {
	key := ruleKey(i)
	for j, name := range rule.Listener {
		if c.sound(key+".listener") && c.listeners[name] == nil {
			c.wrong(item(key+".listener", j), fmt.Sprintf("there is no listener %q", name),
				hintOf(c, name, "listeners", c.p.Listeners, listenerName))
		}
	}
	c.messageRule(key, rule)
	class := c.exists(key+".class", rule.Class)
	back := rule.ReturnClass != "" || c.given(key+".return_class")
	back = back && c.exists(key+".return_class", rule.ReturnClass)
	if !c.sound(key+".listener", key+".protocol", key+".port") {
		return
	}
	for j := range c.p.Listeners {
		l := &c.p.Listeners[j]
		if !rule.appliesTo(l) {
			continue
		}
		if class {
			c.use(key+".class", rule.Class, l, "add protocol = %q to the rule, or ")
		}
		if back {
			c.useBack(key+".return_class", rule.ReturnClass, l, "add protocol = %q to the rule, or ")
		}
	}
}

// exists reports whether a class exists, and its absence as a mistake.
func (c *checker) exists(key, name string) bool {
	if !c.sound(key) || c.classes[name] != nil {
		return c.sound(key)
	}
	allowed := hintOf(c, name, "classes", c.p.Classes, className)
	if len(c.p.Classes) == 0 {
		allowed = fmt.Sprintf("write a section [class.%s]", plainName(name))
	}
	c.wrong(key, fmt.Sprintf("there is no class %q", name), allowed)
	return false
}

// plainName returns a name, or what stands for one where it cannot be one.
func plainName(name string) string {
	if isName(name) && len(name) <= 64 {
		return name
	}
	return "NAME"
}

// enoughHints is after how many mistakes no name is looked for any more that
// may have been meant: each search compares all names.
const enoughHints = 100

func hintOf[T any](c *checker, name, all string, of []T, nameOf func(T) string) string {
	if len(c.errs) >= enoughHints {
		return "one of the " + all + " of this file"
	}
	return Hint(name, all, namesOf(of, nameOf))
}

// use checks that a class can limit what goes to the upstream of a listener:
// an algorithm only limits what it counts. The way out begins what is allowed;
// a rule has one that a listener has not.
func (c *checker) use(key, name string, l *Listener, wayOut string) {
	kind, ok := c.kindFor(key, name, l)
	if ok && !l.Protocol.Counts(kind, false) {
		c.never(key, name, l, kind, way(wayOut, protocolFor(kind))+"give the class a rate in "+countedOn(l.Protocol, false))
	}
}

// useBack is use for what goes back to the client.
func (c *checker) useBack(key, name string, l *Listener, wayOut string) {
	kind, ok := c.kindFor(key, name, l)
	switch {
	case !ok:
	case kind == unit.Connections:
		c.wrong(key, fmt.Sprintf("class %q counts connections, and none are made towards the client: it would never limit", name),
			"a class with a rate in bytes, or packets for udp")
	case kind == unit.Messages && l.Protocol == HTTP:
		c.wrong(key, fmt.Sprintf("class %q counts messages, and a response is none of its own: it would never limit", name),
			"a class with a rate in bytes")
	case !l.Protocol.Counts(kind, true):
		c.never(key, name, l, kind, way(wayOut, protocolFor(kind))+"give the class a rate in "+countedOn(l.Protocol, true))
	}
}

// protocolFor returns a protocol that has what a class counts.
func protocolFor(kind unit.Kind) Protocol {
	switch kind {
	case unit.Packets:
		return UDP
	case unit.Messages:
		return SMPP
	}
	return TCP
}

// countedOn says what can be counted of a protocol.
func countedOn(p Protocol, back bool) string {
	var kinds []string
	for _, kind := range []unit.Kind{unit.Bytes, unit.Packets, unit.Messages, unit.Connections} {
		if p.Counts(kind, back) {
			kinds = append(kinds, kind.String())
		}
	}
	return orList(kinds)
}

// orList prints "a, b or c".
func orList(all []string) string {
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

func (c *checker) never(key, name string, l *Listener, kind unit.Kind, allowed string) {
	c.wrong(key, fmt.Sprintf("class %q counts %v, and the %s listener %q has none: it would never limit", name, kind, l.Protocol, l.Name), allowed)
}

func way(out string, p Protocol) string {
	if out == "" {
		return ""
	}
	return fmt.Sprintf(out, string(p))
}

// kindFor notes that a class limits what a listener carries, and returns what
// the class counts; ok is false where a mistake leaves that open.
func (c *checker) kindFor(key, name string, l *Listener) (kind unit.Kind, ok bool) {
	if !c.sound(key, join("class", name)+".rate", join("listener", l.Name)+".protocol") {
		return 0, false
	}
	c.carries[name][l.Protocol] = true
	return c.classes[name].Rate.Kind(), true
}

// overflow checks that an overflow which is set can be done to all that the
// class limits.
func (c *checker) overflow(class *Class) {
	key := join("class", class.Name) + ".overflow"
	if class.Overflow == "" || !c.sound(key) {
		return
	}
	udp := c.carries[class.Name][UDP]
	tcp := len(c.carries[class.Name]) > 1 || !udp && len(c.carries[class.Name]) > 0
	problem, allowed := "", ""
	switch {
	case udp && class.Overflow != Drop:
		problem, allowed = "cannot be done to the datagrams of a udp listener", `"drop"`
	case tcp && class.Overflow == Drop:
		problem, allowed = "would tear holes into the stream of a tcp listener", `"wait" or "refuse"`
	default:
		return
	}
	if tcp && udp {
		allowed = "leave it out: then tcp waits and udp drops"
	}
	c.wrong(key, fmt.Sprintf("%q %s", class.Overflow, problem), allowed)
}

func namesOf[T any](all []T, nameOf func(T) string) []string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = nameOf(one)
	}
	return names
}

func className(c Class) string       { return c.Name }
func listenerName(l Listener) string { return l.Name }

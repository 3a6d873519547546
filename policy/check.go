package policy

import (
	"fmt"

	"shaper/unit"
)

// check reports what cannot work. It does not report what only follows from another
// mistake. It returns the checker for warnAll.
func check(r *report, p *Policy) *checker {
	c := &checker{r, p, map[string]*Class{}, map[string]*Listener{}, map[string]map[Protocol]bool{}, map[string]int{}}
	for i := range p.Classes {
		c.classes[p.Classes[i].Name] = &p.Classes[i]
		c.carries[p.Classes[i].Name] = map[Protocol]bool{}
	}
	for i := range p.Listeners {
		c.listeners[p.Listeners[i].Name] = &p.Listeners[i]
	}
	pathChecker{c}.parents()
	for i := range p.Fleets {
		fleetChecker{c}.fleet(&p.Fleets[i])
	}
	for i := range p.Classes {
		c.class(&p.Classes[i])
	}
	for i := range p.Listeners {
		c.listener(&p.Listeners[i])
	}
	socketChecker{c}.sockets()
	for i := range p.Rules {
		c.rule(i, &p.Rules[i])
	}
	carried := answerChecker{c}.carriedBelow()
	for i := range p.Classes {
		c.overflow(&p.Classes[i])
		answerChecker{c}.answers(&p.Classes[i], carried[p.Classes[i].Name])
		priceChecker{c}.answers(&p.Classes[i], carried[p.Classes[i].Name])
		answerChecker{c}.queue(&p.Classes[i])
	}
	kernelChecker{c}.kernel()
	return c
}

// someTraffic checks that the policy shapes something. One that includes files may wait for them.
func (c *checker) someTraffic() {
	switch {
	case len(c.p.Listeners) > 0 || len(c.p.TC) > 0 || c.badUnder("listener") || c.badUnder("tc") || !c.sound("daemon.include"):
	case len(c.p.Daemon.Include) > 0:
		c.warn("daemon.include", "no file has a section [listener.NAME] yet, so nothing is shaped", "one in a file that this names")
	default:
		c.wrong("listener", "there is none, so nothing would be shaped", "at least one section [listener.NAME]")
	}
}

// someClass checks that the policy has a class.
func (c *checker) someClass() {
	if len(c.p.Classes) == 0 && !c.badUnder("class") {
		c.wrong("class", "there is none", "at least one section [class.NAME]")
	}
}

// class checks the keys of a class on their own, and against those of its parents.
func (c *checker) class(class *Class) {
	key := join("class", class.Name)
	if !c.sound(key + ".rate") {
		return
	}
	kind := class.Rate.Kind()
	limitChecker{c}.ofClass(key, class)
	for i := range class.At {
		timesChecker{c}.at(key+".at", i, class)
	}
	for i := range class.Quiet {
		timesChecker{c}.quiet(key+".quiet", i, class)
	}
	if problem, allowed := queueMisfit(class.Queue, kind); problem != "" && c.sound(key+".queue") {
		c.wrong(key+".queue", problem, allowed)
	}
	c.keys(key, class)
	fleetChecker{c}.shared(key, class)
	answerChecker{c}.feedback(key, class)
	priceChecker{c}.reads(key, class)
	pathChecker{c}.amongSiblings(class)
}

// queueMisfit says why a queue cannot hold the items that wait for a rate of that kind. It
// returns "" if it can.
func queueMisfit(q Queue, rate unit.Kind) (problem, allowed string) {
	switch of := q.Items.Kind; {
	case rate == unit.Connections && q.Items.N == 0:
		return fmt.Sprintf("%q is a size, and waiting connections have none", q), "a queue in connections or items"
	case q.Items.N == 0, of == unit.Items, of == rate && rate != unit.Tokens, of == unit.Packets && rate == unit.Bytes, of == unit.Messages && rate == unit.Tokens:
		return "", ""
	case rate == unit.Bytes:
		return fmt.Sprintf("%q counts %v, and the rate counts bytes", q, of), "a queue in bytes, packets or items"
	case rate == unit.Packets:
		return fmt.Sprintf("%q counts %v, and the rate counts packets", q, of), "a queue in packets, items or bytes"
	case rate == unit.Tokens:
		return fmt.Sprintf("%q counts %v, and what waits are messages", q, of), "a queue in messages or items"
	default:
		return fmt.Sprintf("%q counts %v, and the rate counts %v", q, of, rate), fmt.Sprintf("a queue in %v or items", rate)
	}
}

// halfClose checks that a listener for datagrams has no half_close_timeout.
func (c *checker) halfClose(key string, l *Listener) {
	if at := key + ".half_close_timeout"; l.Protocol == UDP && c.given(at) && c.sound(at, key+".protocol") {
		c.wrong(at, "the listener is for udp, and datagrams have no end", "leave it out; idle_timeout ends the session")
	}
}

// listener checks the keys of a listener, and the classes that it names.
func (c *checker) listener(l *Listener) {
	key := join("listener", l.Name)
	answerChecker{c}.messages(key, l)
	c.halfClose(key, l)
	upstreamChecker{c}.upstreams(key, l)
	if c.exists(key+".class", l.Class) {
		useChecker{c}.upstream(key+".class", l.Class, l, "")
	}
	if l.ReturnClass != "" || c.given(key+".return_class") {
		if c.exists(key+".return_class", l.ReturnClass) {
			useChecker{c}.downstream(key+".return_class", l.ReturnClass, l, "")
		}
	}
	c.tls(l)
	socketChecker{c}.unix(key, l)
	c.proxy(key, l)
	upstreamChecker{c}.bind(key, l)
	entryChecker{c}.entry(key, l)
}

// proxy checks the keys of the PROXY protocol.
func (c *checker) proxy(key string, l *Listener) {
	if !c.sound(key+".protocol", key+".upstream") {
		return
	}
	if l.Protocol == UDP && len(l.AcceptProxy) > 0 {
		c.wrong(key+".accept_proxy", "the listener is for udp, and a PROXY header begins a stream", "leave it out")
	}
	if l.Protocol == UDP && l.SendProxy == ProxyV1 {
		c.wrong(key+".send_proxy", `the listener is for udp, and "v1" is for streams`, `"v2"`)
	}
	for i, s := range l.Upstream {
		if (s == Echo || s == Discard) && l.SendProxy != "" {
			c.wrong(item(key+".upstream", i), fmt.Sprintf("%q is built in, and reads no PROXY header", s), "another upstream, or leave send_proxy out")
		}
	}
}

// rule checks the listeners and classes that a rule names, and its classes for each listener
// that it can match.
func (c *checker) rule(i int, rule *Rule) {
	key := ruleKey(i)
	for j, name := range rule.Listener {
		if c.sound(key+".listener", "listener") && c.listeners[name] == nil {
			c.wrong(item(key+".listener", j), fmt.Sprintf("there is no listener %q", name),
				hintOf(c, name, "listeners", c.p.Listeners, listenerName))
		}
	}
	answerChecker{c}.messageRule(key, rule)
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
			useChecker{c}.upstream(key+".class", rule.Class, l, "add protocol = %q to the rule, or ")
		}
		if back {
			useChecker{c}.downstream(key+".return_class", rule.ReturnClass, l, "add protocol = %q to the rule, or ")
		}
	}
}

// overflow checks that the overflow of a class can be used for all that the class limits.
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
		problem, allowed = "cannot be used for the datagrams of a udp listener", `"drop"`
	case tcp && class.Overflow == Drop:
		problem, allowed = "would tear holes in the stream of a tcp listener", `"wait" or "refuse"`
	default:
		return
	}
	if tcp && udp {
		allowed = "leave it out: then tcp waits and udp drops"
	}
	c.wrong(key, fmt.Sprintf("%q %s", class.Overflow, problem), allowed)
}

// keys checks what depends on per.
func (c *checker) keys(key string, class *Class) {
	if !c.sound(key + ".per") {
		return
	}
	if at := key + ".max_keys"; class.Per == (Per{}) && c.given(at) && c.sound(at) {
		c.wrong(at, "the class has one bucket for all", `add per = "source", for example, or leave it out`)
	}
	if !class.Per.ByMessage() {
		return
	}
	if kind := class.Rate.Kind(); kind == unit.Connections || kind == unit.Packets {
		c.wrong(key+".per", fmt.Sprintf("the class counts %v, and %q is of messages", kind, class.Per), "leave it out, or set a rate in messages or bytes")
	}
	if at := key + ".max_connections"; class.MaxConnections > 0 && c.sound(at) {
		c.wrong(at, fmt.Sprintf("each message has a bucket by its %v, and a session has none", class.Per), "leave it out, or put it into the class above")
	}
}

// tls checks the keys tls and upstream_tls of a listener.
func (c *checker) tls(l *Listener) {
	key := join("listener", l.Name)
	if l.Protocol == UDP && c.sound(key+".protocol") {
		const problem, allowed = "the listener is for udp, and TLS is for streams", "leave it out"
		if l.TLS != nil {
			c.wrong(key+".tls", problem, allowed)
		}
		if l.UpstreamTLS != nil {
			c.wrong(key+".upstream_tls", problem, allowed)
		}
		return
	}
	if u := l.UpstreamTLS; u != nil {
		c.upstreamTLS(key, l, u)
	}
}

// upstreamTLS checks the key upstream_tls of a listener.
func (c *checker) upstreamTLS(key string, l *Listener, u *ClientTLS) {
	at := key + ".upstream_tls"
	c.certAndKey(at, u)
	if u.Insecure && u.CA != "" {
		c.wrong(at+".insecure", "nothing is verified, so ca has no effect", "ca, or insecure = true, and not both")
	}
	for i, s := range l.Upstream {
		if (s == Echo || s == Discard) && c.sound(key+".upstream") {
			c.wrong(item(key+".upstream", i), fmt.Sprintf("%q is built in, and speaks no TLS", s), "another upstream, or leave upstream_tls out")
		}
	}
}

package policy

import (
	"fmt"
	"shaper/unit"
	"slices"
	"time"
)

// A kernelChecker checks what the kernel is to shape: sections [tc.DEVICE], their classes
// and rules.
type kernelChecker struct{ *checker }

// kernel checks the sections [tc.DEVICE].
func (c kernelChecker) kernel() {
	for i := range c.p.TC {
		c.tc(&c.p.TC[i])
	}
	if n := len(c.inKernel()); n > maxKernelClasses {
		c.wrong("tc", fmt.Sprintf("%d classes are to be put into the kernel, which has numbers for %d", n, maxKernelClasses), "smaller trees")
	}
}

// tc checks that the kernel can do what a section asks of it.
func (c kernelChecker) tc(t *TC) {
	key := join("tc", t.Device)
	sound := c.sound(key+".class") && c.exists(key+".class", t.Class)
	if t.Ingress != "" || c.given(key+".ingress") {
		sound = c.exists(key+".ingress", t.Ingress) && sound
	}
	if !sound {
		return
	}
	in, proxied := map[string]bool{}, c.proxied()
	for _, root := range t.roots() {
		for _, class := range c.treeOf(root) {
			if !in[class.Name] {
				in[class.Name] = true
				c.kernelClass(t, &class, proxied[class.Name])
			}
		}
	}
	for i := range c.p.Rules {
		if in[c.p.Rules[i].Class] {
			c.kernelRule(t, i)
		}
	}
	for _, root := range t.roots() {
		if n := c.filters(root); n > MaxFilters {
			c.wrong(key, fmt.Sprintf("the rules up to the last for class %q or one beneath it come to more than %d filters in the kernel", root, MaxFilters), "fewer rules, or fewer addresses or ports in them")
		}
	}
}

// filters returns how many filters the rules come to for the tree under a class: those
// behind the last rule that leads there make no difference, and a lone class needs none.
func (c kernelChecker) filters(root string) int {
	tree := c.treeOf(root)
	if len(tree) < 2 {
		return 0
	}
	in := map[string]bool{}
	for _, class := range tree {
		in[class.Name] = true
	}
	n, all := 0, 0
	for i := range c.p.Rules {
		r := &c.p.Rules[i]
		if f := r.Filters(); len(r.Listener) == 0 && f <= MaxFilters { // else that is reported of the rule
			all += f
		}
		if in[r.Class] {
			n = all
		}
	}
	return n
}

// Bounds of what the kernel's qdiscs can be told.
const (
	// twoFrames is the least that a bucket holds: what it has no room for would be
	// dropped, and at its edge two frames of Ethernet meet.
	twoFrames = 2 * 1514
	// longestBurst is what 32 bits hold of the kernel's clock of 64 ns.
	longestBurst = 274 * time.Second
	// MaxFilters bounds the filters that the rules of one device come to.
	MaxFilters = 65536
)

// kernelClass checks that the kernel can do what a class says. Where it is proxied
// too, some of it may be for the proxy.
func (c kernelChecker) kernelClass(t *TC, class *Class, proxied bool) {
	key := join("class", class.Name)
	if !c.sound(key+".rate", key+".ceil", key+".algorithm", key+".burst", key+".headroom") {
		return
	}
	no := func(name, reason, instead string) {
		at := key + "." + name
		if c.sound(at) {
			c.wrong(at, fmt.Sprintf("class %q cannot be put into the kernel by [tc.%s]: %s", class.Name, t.Device, reason), instead)
		}
	}
	limit := class.Limit().Below(class.Headroom)
	switch {
	case class.Rate.Kind() != unit.Bytes:
		no("rate", fmt.Sprintf("it counts %v, and qdiscs count bytes", class.Rate.Kind()), "a rate in bytes, or a parent that is in no [tc.DEVICE]")
		return
	case class.Algorithm.HasWindow():
		no("algorithm", "no qdisc counts in windows", `"leaky", "token" or "gcra"`)
	case limit.Units(time.Second)*int64(longestBurst/time.Second) < twoFrames: // they have whole bytes per second
		no("rate", fmt.Sprintf("at %q two frames take longer than the %v that qdiscs reckon with", limit, longestBurst), `at least "96bit"; what is to be blocked is a firewall's`)
	case !class.Burst.IsZero() && class.Burst.N < twoFrames:
		no("burst", fmt.Sprintf("%q is less than two frames, %d bytes, and what a bucket has no room for is dropped", class.Burst, twoFrames), `at least "3028B"`)
	case !class.Burst.IsZero() && limit.Time(class.Burst.N) > longestBurst:
		no("burst", fmt.Sprintf("%q lasts longer than the %v that qdiscs reckon with", class.Burst, longestBurst), "a smaller burst, or a higher rate")
	}
	if class.Per != (Per{}) {
		no("per", "a qdisc is one bucket for all", "leave it out, or another class for the device")
	}
	if class.Shadow {
		no("shadow", "a qdisc does what it computes", "leave it out, or another class for the device")
	}
	if (class.Overflow == Wait || class.Overflow == Refuse) && !proxied {
		no("overflow", "it drops what finds no room", `"drop", or leave it out`)
	}
	if class.MaxConnections > 0 && !proxied {
		no("max_connections", "it knows no connections", "leave it out, or have a listener use the class")
	}
}

// proxied returns the names of the classes that listeners lead to, and of those
// above them.
func (c kernelChecker) proxied() map[string]bool {
	names := map[string]bool{}
	for name, carried := range c.carries {
		for class := c.classes[name]; len(carried) > 0 && class != nil && !names[class.Name]; class = c.above(class) {
			names[class.Name] = true
		}
	}
	return names
}

// kernelRule checks that filters can tell what a rule is about.
func (c kernelChecker) kernelRule(t *TC, i int) {
	rule, key := &c.p.Rules[i], ruleKey(i)
	if len(rule.Listener) > 0 && !t.Mark && c.sound(key+".listener") {
		c.wrong(key+".listener", fmt.Sprintf("class %q is put into the kernel by [tc.%s], which knows neither listeners nor the source before the proxy", rule.Class, t.Device),
			fmt.Sprintf("add mark = true to [tc.%s], or match by source and port of the packets", t.Device))
	}
	if rule.Filters() > MaxFilters {
		c.wrong(key, fmt.Sprintf("it comes to more than %d filters in the kernel, each address with each port", MaxFilters), "fewer addresses or ports, or several rules")
	}
}

// inKernel returns the names of the classes that devices are shaped with.
func (c kernelChecker) inKernel() map[string]bool {
	in := map[string]bool{}
	for _, t := range c.p.TC {
		for _, root := range t.roots() {
			for _, class := range c.treeOf(root) {
				in[class.Name] = true
			}
		}
	}
	return in
}

// treeOf is Tree where a class may be missing, or under itself: that is reported
// already.
func (c kernelChecker) treeOf(root string) []Class {
	if class := c.classes[root]; class == nil || c.depth[root] < 1 {
		return nil
	}
	return c.p.Tree(root)
}

// warnKernel reports what only the proxy heeds.
func (c kernelChecker) warnKernel() {
	in, parents := c.inKernel(), map[string]bool{}
	for _, class := range c.p.Classes {
		parents[class.Parent] = true
	}
	defaults := DefaultClass("")
	for _, class := range c.p.Classes {
		if !in[class.Name] || !parents[class.Name] {
			continue
		}
		if class.Priority != defaults.Priority || class.Weight != defaults.Weight {
			c.warn(join("class", class.Name), "in the kernel its priority and weight mean nothing: HTB has those of classes without children only", "give them to the classes beneath it")
		}
	}
	marked := slices.ContainsFunc(c.p.TC, func(t TC) bool { return t.Mark })
	for i := range c.p.Rules {
		rule := &c.p.Rules[i]
		if !in[rule.Class] || marked || len(rule.Source)+len(rule.SourcePort) == 0 {
			continue
		}
		if j := slices.IndexFunc(c.p.Listeners, func(l Listener) bool { return rule.appliesTo(&l) }); j >= 0 {
			c.warn(ruleKey(i), fmt.Sprintf("of what comes through listener %q the kernel sees the source behind the proxy, which is this machine", c.p.Listeners[j].Name),
				"add mark = true to the section [tc.DEVICE], and the class is known there")
		}
	}
}

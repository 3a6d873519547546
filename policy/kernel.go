package policy

import (
	"fmt"
	"slices"
	"time"

	"shaper/unit"
)

// A kernelChecker checks the sections [tc.DEVICE], and the classes and rules that they bring
// into the kernel.
type kernelChecker struct{ *checker }

// kernel checks all sections [tc.DEVICE].
func (c kernelChecker) kernel() {
	for i := range c.p.TC {
		c.tc(&c.p.TC[i])
	}
	if n := len(c.inKernel()); n > maxKernelClasses {
		c.wrong("tc", fmt.Sprintf("%d classes are for the kernel, which has numbers for %d", n, maxKernelClasses), "smaller trees")
	}
}

// tc checks that the kernel can do what one section asks of it.
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
		tree := c.treeOf(root)
		if len(tree) == 1 {
			c.loneClass(t, &tree[0])
		}
		for _, class := range tree {
			if !in[class.Name] {
				in[class.Name] = true
				c.kernelClass(t, &class, proxied[class.Name])
			}
		}
	}
	filtered := c.filtered(*t)
	for i := range c.p.Rules {
		if filtered[c.p.Rules[i].Class] {
			c.kernelRule(t, i)
		}
	}
	for _, root := range t.roots() {
		if n := c.filters(root); n > MaxFilters {
			c.wrong(key, fmt.Sprintf("the rules up to the last one for class %q or for a class below it need more than %d filters in the kernel", root, MaxFilters), "fewer rules, or fewer addresses or ports in them")
		}
	}
}

// filters returns how many filters the tree of a root class needs. Rules after the last one
// that leads to the tree need none, and neither does a tree of one class.
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
		if f := r.Filters(); !r.ProxyOnly() && (f <= MaxFilters || !in[r.Class]) { // one of the tree has a mistake of its own
			all += f
		}
		if in[r.Class] {
			n = all
		}
	}
	return n
}

// The bounds of what the kernel's qdiscs can do.
const (
	// twoFrames is the least depth of a bucket, in bytes: two frames of Ethernet. A qdisc
	// drops what its bucket has no room for.
	twoFrames = 2 * 1514
	// longestBurst is the time that fits in 32 bits, in the kernel's ticks of 64 ns.
	longestBurst = 274 * time.Second
	// tbfMost is the largest burst that TBF takes, in bytes.
	tbfMost = 1<<32 - 1
	// MaxFilters is how many filters the rules of one device may need.
	MaxFilters = 65536
)

// kernelClass checks that the kernel can do what a class says. If listeners also use the
// class, keys that only the proxy can obey are valid.
func (c kernelChecker) kernelClass(t *TC, class *Class, proxied bool) {
	key := join("class", class.Name)
	if !c.sound(key+".rate", key+".ceil", key+".algorithm", key+".burst", key+".headroom") {
		return
	}
	refuse := func(name, reason, instead string) {
		at := key + "." + name
		if c.sound(at) {
			c.wrong(at, fmt.Sprintf("class %q cannot be put into the kernel by [tc.%s]: %s", class.Name, t.Device, reason), instead)
		}
	}
	limit := class.Limit().Below(class.Headroom)
	switch {
	case class.Rate.Kind() != unit.Bytes:
		refuse("rate", fmt.Sprintf("it counts %v, and qdiscs count bytes", class.Rate.Kind()), "a rate in bytes, or a parent that is in no [tc.DEVICE]")
		return
	case class.Algorithm.HasWindow():
		refuse("algorithm", "no qdisc counts in windows", `"leaky", "token" or "gcra"`)
	case len(class.Also) > 0:
		refuse("also", "a qdisc has one limit", "leave it out, or another class for the device")
	case limit.Units(time.Second)*int64(longestBurst/time.Second) < twoFrames: // qdiscs have whole bytes per second
		refuse("rate", fmt.Sprintf("at %q two frames take longer than the %v that qdiscs can represent", limit, longestBurst), `at least "96bit"; use a firewall to block everything`)
	case !class.Burst.IsZero() && class.Burst.N < twoFrames:
		refuse("burst", fmt.Sprintf("%q is less than two frames, %d bytes, and what a bucket has no room for is dropped", class.Burst, twoFrames), `at least "3028B"`)
	case !class.Burst.IsZero() && limit.Time(class.Burst.N) > longestBurst:
		refuse("burst", fmt.Sprintf("%q lasts longer than the %v that qdiscs can represent", class.Burst, longestBurst), "a smaller burst, or a higher rate")
	}
	if len(class.At) > 0 {
		refuse("at", "a qdisc knows no times of day", "leave it out, or another class for the device")
	}
	if class.Per != (Per{}) {
		refuse("per", "a qdisc is one bucket for all", "leave it out, or another class for the device")
	}
	if class.Shadow {
		refuse("shadow", "a qdisc does what it computes", "leave it out, or another class for the device")
	}
	if (class.Overflow == Wait || class.Overflow == Refuse) && !proxied {
		refuse("overflow", "it drops items that find no room", `"drop", or leave it out`)
	}
	if class.MaxConnections > 0 && !proxied {
		refuse("max_connections", "it knows no connections", "leave it out, or name the class in a listener")
	}
}

// loneClass checks that TBF, the qdisc of a tree of one class, can have the burst of the class.
func (c kernelChecker) loneClass(t *TC, class *Class) {
	if key := join("class", class.Name) + ".burst"; class.Burst.Kind == unit.Bytes && class.Burst.N > tbfMost && c.sound(key) {
		c.wrong(key, fmt.Sprintf("class %q cannot be put into the kernel by [tc.%s]: the qdisc of a class alone takes bursts below 4GiB, and this is %q", class.Name, t.Device, class.Burst),
			"a smaller burst")
	}
}

// proxied returns the names of the classes that listeners use, and of the classes above them.
func (c kernelChecker) proxied() map[string]bool {
	names := map[string]bool{}
	for name, carried := range c.carries {
		for class := c.classes[name]; len(carried) > 0 && class != nil && !names[class.Name]; class = c.above(class) {
			names[class.Name] = true
		}
	}
	return names
}

// filtered returns the names of the classes of sections to which filters lead. A class alone on a device
// needs none: all packets are in it.
func (c kernelChecker) filtered(sections ...TC) map[string]bool {
	names := map[string]bool{}
	for _, t := range sections {
		for _, root := range t.roots() {
			tree := c.treeOf(root)
			for _, class := range tree {
				names[class.Name] = names[class.Name] || len(tree) > 1
			}
		}
	}
	return names
}

// kernelRule checks that filters, or the marks of the proxy, can do what a rule says that leads to a filtered
// class.
func (c kernelChecker) kernelRule(t *TC, i int) {
	rule, key := &c.p.Rules[i], ruleKey(i)
	if !rule.ProxyOnly() {
		if rule.Filters() > MaxFilters {
			c.wrong(key, fmt.Sprintf("it needs more than %d filters in the kernel, one for each address with each port", MaxFilters), "fewer addresses or ports, or several rules")
		}
		return
	}
	name, unknown := rule.marked()
	if at := key + "." + name; unknown != "" && !t.Mark && c.sound(at) {
		c.wrong(at, fmt.Sprintf("class %q is put into the kernel by [tc.%s], which knows neither %s nor the client of the proxy", rule.Class, t.Device, unknown),
			fmt.Sprintf("add mark = true to [tc.%s], or match by source and port of the packets", t.Device))
	}
}

// marked returns the first key of a rule for connections that the kernel obeys only by marks, and what it asks
// for. Both are "" for a rule for messages: a mark is for the whole connection.
func (r *Rule) marked() (key, unknown string) {
	switch {
	case len(r.Listener) > 0:
		return "listener", "the listener"
	case r.looksAtMessages():
		return "", ""
	case len(r.User) > 0:
		return "user", "the user"
	case len(r.ServerName) > 0:
		return "server_name", "the name"
	case r.wantsMessages():
		return "protocol", "what TCP carries"
	}
	return "", ""
}

// inKernel returns the names of the classes that shape devices.
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

// treeOf is Policy.Tree, but returns nil if the class is missing or below itself. Both are
// reported elsewhere.
func (c kernelChecker) treeOf(root string) []Class {
	if class := c.classes[root]; class == nil || c.depth[root] < 1 {
		return nil
	}
	return c.p.Tree(root)
}

// warnKernel warns of what only the proxy obeys.
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
			c.warn(join("class", class.Name), "the kernel ignores its priority and weight: HTB uses only those of classes without children", "give them to the classes below it")
		}
	}
	c.warnKernelRules()
}

// warnKernelRules warns of rules that the kernel cannot obey.
func (c kernelChecker) warnKernelRules() {
	marked := slices.ContainsFunc(c.p.TC, func(t TC) bool { return t.Mark })
	filtered := c.filtered(c.p.TC...)
	for i := range c.p.Rules {
		rule := &c.p.Rules[i]
		if !filtered[rule.Class] {
			continue
		}
		if rule.looksAtMessages() {
			c.warn(ruleKey(i), fmt.Sprintf("it looks at messages, and the kernel knows none: there they do not belong to class %q, but to that of their connection", rule.Class),
				"a class that is in no [tc.DEVICE]")
			continue
		}
		if marked || len(rule.Source)+len(rule.SourcePort) == 0 {
			continue
		}
		if j := slices.IndexFunc(c.p.Listeners, func(l Listener) bool { return rule.appliesTo(&l) }); j >= 0 {
			c.warn(ruleKey(i), fmt.Sprintf("the kernel sees this machine as the source of what listener %q forwards", c.p.Listeners[j].Name),
				"add mark = true to the section [tc.DEVICE], so that the kernel knows the class")
		}
	}
}

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"shaper/unit"
)

// TC is a section [tc.DEVICE]: the tree of classes that the kernel shapes a
// network device with.
type TC struct {
	Device string `json:"device"`
	// Class is the root of the tree that what leaves the device goes through.
	Class string `json:"class"`
	// Ingress is the root of the tree for what arrives; "" does not shape it.
	Ingress string `json:"ingress,omitempty"`
	// Apply has the daemon put it into the kernel, and keep it there.
	Apply bool `json:"apply"`
	// TakeOver allows to replace a root qdisc that somebody else has made.
	TakeOver bool `json:"take_over"`
	// Mark has the proxy mark what it sends with the class it belongs to.
	Mark bool `json:"mark"`
}

// DefaultTC returns a section with its defaults; Class has none and is required.
func DefaultTC(device string) TC { return TC{Device: device} }

func tcDevice(t TC) string { return t.Device }

var tcFields = []field[TC]{
	must(one("class", classForm, func(t *TC) *string { return &t.Class }, anything)),
	orNone("none", one("ingress", classForm, func(t *TC) *string { return &t.Ingress }, anything)),
	yesNo("apply", func(t *TC) *bool { return &t.Apply }),
	yesNo("take_over", func(t *TC) *bool { return &t.TakeOver }),
	yesNo("mark", func(t *TC) *bool { return &t.Mark }),
}

// decodeTC reads the sections [tc.DEVICE].
func (p *Policy) decodeTC(r *report, section *node, whole bool) {
	const header = "[tc.DEVICE]"
	if !isTable(r, "tc", section, header) {
		return
	}
	for _, e := range section.keys {
		key := join("tc", e.name)
		if !isDevice(e.name) {
			r.wrongAt(e.at, key, quote(e.name)+" cannot be a device", `a network device has at most 15 characters, as in [tc.eth0] or [tc."eth0.100"]`)
			continue
		}
		r.at[key] = e.at
		if isTable(r, key, e.value, header) {
			t := DefaultTC(e.name)
			decode(r, key, e.value, &t, tcFields, whole)
			p.TC = append(p.TC, t)
		}
	}
}

// isDevice reports whether the kernel takes s as the name of a device
// (dev_valid_name in net/core/dev.c).
func isDevice(s string) bool {
	return s != "" && len(s) <= 15 && s != "." && s != ".." && !strings.ContainsAny(s, "/: \t\n\v\f\r")
}

func (p *Policy) tcBranches(only map[string]bool) (all []branch) {
	for i := range p.TC {
		defaults := DefaultTC(p.TC[i].Device)
		all = append(all, branch{"tc " + p.TC[i].Device, table(join("tc", p.TC[i].Device), &p.TC[i], &defaults, tcFields, only), nil})
	}
	return all
}

// Tree returns a class and all that are beneath it, each behind its parent; nil
// where there is no such class.
func (p *Policy) Tree(root string) (all []Class) {
	class, ok := p.Class(root)
	if !ok {
		return nil
	}
	under := p.byParent()
	var walk func(*Class)
	walk = func(c *Class) {
		all = append(all, *c)
		for _, child := range under[c.Name] {
			walk(child)
		}
	}
	walk(&class)
	return all
}

// inKernel returns the names of the classes that devices are shaped with.
func (c *checker) inKernel() map[string]bool {
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
func (c *checker) treeOf(root string) []Class {
	if class := c.classes[root]; class == nil || c.depth[root] < 1 {
		return nil
	}
	return c.p.Tree(root)
}

// roots returns the roots of the trees of a section.
func (t *TC) roots() []string {
	if t.Ingress == "" {
		return []string{t.Class}
	}
	return []string{t.Class, t.Ingress}
}

// kernel checks the sections [tc.DEVICE].
func (c *checker) kernel() {
	for i := range c.p.TC {
		c.tc(&c.p.TC[i])
	}
	if n := len(c.inKernel()); n > maxKernelClasses {
		c.wrong("tc", fmt.Sprintf("%d classes are to be put into the kernel, which has numbers for %d", n, maxKernelClasses), "smaller trees")
	}
}

// tc checks that the kernel can do what a section asks of it.
func (c *checker) tc(t *TC) {
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
func (c *checker) filters(root string) int {
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
func (c *checker) kernelClass(t *TC, class *Class, proxied bool) {
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
func (c *checker) proxied() map[string]bool {
	names := map[string]bool{}
	for name, carried := range c.carries {
		for class := c.classes[name]; len(carried) > 0 && class != nil && !names[class.Name]; class = c.above(class) {
			names[class.Name] = true
		}
	}
	return names
}

// kernelRule checks that filters can tell what a rule is about.
func (c *checker) kernelRule(t *TC, i int) {
	rule, key := &c.p.Rules[i], ruleKey(i)
	if len(rule.Listener) > 0 && !t.Mark && c.sound(key+".listener") {
		c.wrong(key+".listener", fmt.Sprintf("class %q is put into the kernel by [tc.%s], which knows neither listeners nor the source before the proxy", rule.Class, t.Device),
			fmt.Sprintf("add mark = true to [tc.%s], or match by source and port of the packets", t.Device))
	}
	if rule.Filters() > MaxFilters {
		c.wrong(key, fmt.Sprintf("it comes to more than %d filters in the kernel, each address with each port", MaxFilters), "fewer addresses or ports, or several rules")
	}
}

// warnKernel reports what only the proxy heeds.
func (c *checker) warnKernel() {
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

// Filters returns how many filters the rule comes to in the kernel: each value of each
// key with each of the others. Beyond MaxFilters it is anything above that.
func (r *Rule) Filters() int {
	n := 0
	for _, four := range []bool{true, false} {
		n += ofFamily(r.Source, four) * ofFamily(r.Destination, four)
	}
	for _, values := range []int{len(masks(r.SourcePort)), len(masks(r.Port)), len(r.IPProtocols())} {
		n = min(n*max(values, 1), MaxFilters+1)
	}
	return n
}

// ofFamily returns how many prefixes are of a family, that of IPv4 or of IPv6; 1, any
// address, where there are none at all.
func ofFamily(all []netip.Prefix, four bool) (n int) {
	for _, p := range all {
		if p.Addr().Is4() == four {
			n++
		}
	}
	if len(all) == 0 {
		n = 1
	}
	return n
}

// IPProtocols returns the protocols by which packets are told apart; none where
// each will do, those without ports too.
func (r *Rule) IPProtocols() []Protocol {
	if len(r.Protocol) == 0 && len(r.Port)+len(r.SourcePort) > 0 {
		return []Protocol{TCP, UDP}
	}
	return r.Protocol
}

// PortMask is the ports of which the bits in Mask are those of Port.
type PortMask struct{ Port, Mask uint16 }

// Masks returns the range as masks, in ascending order: the fewest that hold each
// of its ports and no other.
func (r PortRange) Masks() (all []PortMask) {
	for first, last := int(r.First), int(r.Last); first <= last; {
		size := 1
		for first&(2*size-1) == 0 && first+2*size-1 <= last {
			size *= 2
		}
		all = append(all, PortMask{uint16(first), uint16(^(size - 1))})
		first += size
	}
	return all
}

func masks(ranges []PortRange) (all []PortMask) {
	for _, r := range ranges {
		all = append(all, r.Masks()...)
	}
	return all
}

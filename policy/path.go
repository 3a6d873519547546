package policy

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"shaper/unit"
)

// maxDepth is how many classes an item may be charged to, as in the kernel
// (TC_HTB_MAXDEPTH in net/sched/sch_htb.c).
const maxDepth = 8

// parents checks that the parents make trees, before anything follows them.
func (c *checker) parents() {
	for i := range c.p.Classes {
		c.depthOf(&c.p.Classes[i])
	}
}

// depthOf returns how many classes are on the path to the root, the class itself
// with them; below 1 where there is no such path, which is reported once.
func (c *checker) depthOf(class *Class) int {
	if depth, known := c.depth[class.Name]; known {
		return depth
	}
	c.depth[class.Name] = 0 // whoever comes back here meanwhile has gone in a circle
	depth := 1
	key := join("class", class.Name) + ".parent"
	switch {
	case class.Parent == "" && !c.given(key):
	case class.Parent == class.Name:
		c.wrong(key, fmt.Sprintf("%q is the class itself", class.Parent), "another class, or leave the key out")
		depth = -1
	case !c.exists(key, class.Parent):
		depth = -1
	default:
		depth = c.beneath(key, class, c.depthOf(c.classes[class.Parent]))
	}
	c.depth[class.Name] = depth
	return depth
}

// beneath returns the depth of a class whose parent has one.
func (c *checker) beneath(key string, class *Class, above int) int {
	switch {
	case above < 0:
		return -1
	case above == 0:
		c.wrong(key, fmt.Sprintf("%q is itself under %q", class.Parent, class.Name), "parents that lead to a class without one")
		return -1
	case c.classes[class.Parent].Per != (Per{}):
		c.wrong(key, fmt.Sprintf("%q has a bucket per %v, and nothing can be under all of them", class.Parent, c.classes[class.Parent].Per),
			fmt.Sprintf("a parent without per, or put %q under %q", class.Parent, class.Name))
		return -1
	case above == maxDepth:
		c.wrong(key, fmt.Sprintf("%q is the last of %d classes, one under the other", class.Parent, maxDepth),
			fmt.Sprintf("at most %d, as in the kernel", maxDepth))
		return -1
	}
	return above + 1
}

// above returns the class above one of which the path is sound; nil for a root.
func (c *checker) above(class *Class) *Class {
	if c.depth[class.Name] <= 1 {
		return nil
	}
	return c.classes[class.Parent]
}

// aboveIn returns the nearest class above one that counts the same; nil for none.
func (c *checker) aboveIn(class *Class) *Class {
	p := c.above(class)
	for p != nil && p.Rate.Kind() != class.Rate.Kind() {
		p = c.above(p)
	}
	return p
}

// competes checks what a class says about its place among its siblings.
func (c *checker) competes(class *Class) {
	key := join("class", class.Name)
	if c.depth[class.Name] == 1 {
		c.alone(key, class)
		return
	}
	kind := class.Rate.Kind()
	if p := c.above(class); p != nil && c.sound(join("class", p.Name)+".rate", key+".parent") {
		if of := p.Rate.Kind(); of != kind && (of == unit.Connections || kind == unit.Connections) {
			c.wrong(key+".parent", fmt.Sprintf("class %q counts %v, and its parent %q counts %v: nothing costs both", class.Name, kind, p.Name, of),
				"a parent that counts "+allowedAbove(kind))
		}
	}
	if c.sound(key + ".ceil") {
		c.ceil(key+".ceil", class)
	}
}

func allowedAbove(kind unit.Kind) string {
	if kind == unit.Connections {
		return "connections too"
	}
	return "bytes or packets"
}

// alone refuses, of a class without a parent, what is about its siblings.
func (c *checker) alone(key string, class *Class) {
	defaults := DefaultClass(class.Name)
	for _, one := range []struct {
		name string
		set  bool
	}{
		{"ceil", class.Ceil != defaults.Ceil}, {"priority", class.Priority != defaults.Priority}, {"weight", class.Weight != defaults.Weight},
	} {
		if at := key + "." + one.name; (one.set || c.given(at)) && c.sound(at) {
			c.wrong(at, "the class has no parent, so that it has nobody to share with", "name a parent, or leave it out")
		}
	}
}

// ceil checks that a class may borrow what it says.
func (c *checker) ceil(key string, class *Class) {
	if class.Ceil == (unit.Rate{}) {
		return
	}
	if class.Ceil.Kind() != class.Rate.Kind() {
		c.wrong(key, fmt.Sprintf("%q counts %v, and the rate %q counts %v", class.Ceil, class.Ceil.Kind(), class.Rate, class.Rate.Kind()),
			"a ceil in "+class.Rate.Kind().String())
		return
	}
	if class.Ceil.Compare(class.Rate) < 0 {
		c.wrong(key, fmt.Sprintf("%q is below the rate %q, which the class is assured", class.Ceil, class.Rate), "at least the rate")
	}
	for p := c.aboveIn(class); p != nil && class.Ceil.Compare(p.Limit()) > 0; p = c.aboveIn(p) {
		above := join("class", p.Name)
		if !c.sound(above+".ceil", above+".algorithm", above+".burst", above+".window", above+".headroom") {
			return
		}
		if fraction(class.Ceil).Cmp(peak(p, p.Limit())) > 0 {
			c.wrong(key, fmt.Sprintf("%q is above what class %q may send, %q", class.Ceil, p.Name, c.mostBeneath(p)), "at most that")
			return
		}
	}
}

// peak returns what a class may send at a rate, in units per nanosecond: that, or in a
// second what its window or its burst lets leave at once, if that is more.
func peak(class *Class, rate unit.Rate) *big.Rat {
	most, atOnce := fraction(rate), big.NewRat(class.AtOnce(), int64(time.Second))
	if atOnce.Cmp(most) > 0 {
		return atOnce
	}
	return most
}

// mostBeneath returns how high a ceil beneath a class may be, as a file has it.
func (c *checker) mostBeneath(class *Class) string {
	limit := class.Limit()
	if c.aboveIn(class) == nil && peak(class, limit).Cmp(fraction(limit)) > 0 {
		return Burst{class.AtOnce(), limit.Kind()}.String() + "/s"
	}
	return limit.String()
}

// warnAssured reports classes that have less than those beneath them are assured
// together, and cannot let it pass at once either.
func (c *checker) warnAssured() {
	sums, of := map[*Class]*big.Rat{}, map[*Class][]string{}
	for i := range c.p.Classes {
		class := &c.p.Classes[i]
		p := c.aboveIn(class)
		if p == nil {
			continue
		}
		if sums[p] == nil {
			sums[p] = new(big.Rat)
		}
		sums[p].Add(sums[p], fraction(class.Rate))
		of[p] = append(of[p], class.Name)
	}
	for i := range c.p.Classes {
		if p := &c.p.Classes[i]; sums[p] != nil && sums[p].Cmp(peak(p, p.Rate)) > 0 {
			together := "are assured together"
			if len(of[p]) == 1 {
				together = "is assured"
			}
			c.warn(join("class", p.Name)+".rate", fmt.Sprintf("%q is less than what %s %s", p.Rate, few(of[p]), together),
				fmt.Sprintf("lower the rates to %q in all, and give each a ceil of at most %q", p.Rate, c.mostBeneath(p)))
		}
	}
}

// fraction returns a rate in units per nanosecond, exactly.
func fraction(r unit.Rate) *big.Rat {
	units, ns := r.Exact()
	if units == 0 {
		return new(big.Rat)
	}
	return big.NewRat(units, ns)
}

// used returns the names of all classes that a listener or a rule leads to, and
// of those above them: upwards those of sessions, and also of what goes back.
func (c *checker) used() (upwards, either map[string]bool) {
	upwards = map[string]bool{}
	for _, l := range c.p.Listeners {
		c.mark(upwards, l.Class)
	}
	for _, rule := range c.p.Rules {
		c.mark(upwards, rule.Class)
	}
	either = maps.Clone(upwards)
	for _, l := range c.p.Listeners {
		c.mark(either, l.ReturnClass)
	}
	for _, rule := range c.p.Rules {
		c.mark(either, rule.ReturnClass)
	}
	for name := range c.inKernel() {
		c.mark(either, name)
	}
	return upwards, either
}

// mark adds a class and those above it.
func (c *checker) mark(used map[string]bool, name string) {
	for class := c.classes[name]; class != nil && !used[class.Name]; class = c.above(class) {
		used[class.Name] = true
	}
}

// byParent returns the classes under each, in file order; those without a parent
// are under "".
func (p *Policy) byParent() map[string][]*Class {
	under := map[string][]*Class{}
	for i := range p.Classes {
		under[p.Classes[i].Parent] = append(under[p.Classes[i].Parent], &p.Classes[i])
	}
	return under
}

// fieldsOfListener is fieldsOf for a listener: datagrams have neither TLS nor an end, and
// only some messages a length.
func fieldsOfListener(l *Listener) []field[Listener] {
	return slices.DeleteFunc(slices.Clone(listenerFields), func(f field[Listener]) bool {
		switch f.name {
		case "tls", "upstream_tls", "half_close_timeout":
			return l.Protocol == UDP
		case "length_prefix", "length_includes_itself", "header_length":
			return l.Protocol != ISO8583
		case "host":
			return l.Protocol != HTTP
		}
		return false
	})
}

// fieldsOf returns the fields that mean something to a class: not every algorithm
// has a burst or a window, and one without a parent has no siblings.
func fieldsOf(class *Class) []field[Class] {
	return slices.DeleteFunc(slices.Clone(classFields), func(f field[Class]) bool {
		switch f.name {
		case "burst":
			return !class.Algorithm.HasBurst()
		case "window":
			return !class.Algorithm.HasWindow()
		case "max_keys":
			return class.Per == (Per{})
		case "in_flight", "on_throttle", "adapt":
			return class.Rate.Kind() != unit.Messages
		case "ceil", "priority", "weight":
			return class.Parent == ""
		}
		return false
	})
}

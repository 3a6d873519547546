package policy

import (
	"fmt"
	"math/big"
	"time"

	"shaper/unit"
)

// maxDepth is how many classes may charge an item, as in the kernel (TC_HTB_MAXDEPTH in
// net/sched/sch_htb.c).
const maxDepth = 8

// A pathChecker checks the parents of classes, and what a class says about its siblings.
type pathChecker struct{ *checker }

// parents checks that the keys parent form trees. It comes before all that follows parents.
func (c pathChecker) parents() {
	for i := range c.p.Classes {
		c.depthOf(&c.p.Classes[i])
	}
}

// depthOf returns how many classes are on the path from a class to its root, both included. It
// returns a number below 1 if there is no such path, and reports that once.
func (c pathChecker) depthOf(class *Class) int {
	if depth, known := c.depth[class.Name]; known {
		return depth
	}
	c.depth[class.Name] = 0 // a call that finds this value meanwhile has followed a circle
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
		depth = c.depthBelow(key, class, c.depthOf(c.classes[class.Parent]))
	}
	c.depth[class.Name] = depth
	return depth
}

// depthBelow returns the depth of a class whose parent has the depth above. It reports a
// parent that cannot be one.
func (c pathChecker) depthBelow(key string, class *Class, above int) int {
	switch {
	case above < 0:
		return -1
	case above == 0:
		c.wrong(key, fmt.Sprintf("%q is itself under %q", class.Parent, class.Name), "a chain of parents that ends at a class without one")
		return -1
	case above == maxDepth:
		c.wrong(key, fmt.Sprintf("%q is the last of %d classes, one under the other", class.Parent, maxDepth),
			fmt.Sprintf("at most %d, as in the kernel", maxDepth))
		return -1
	}
	c.inheritKeys(class, c.classes[class.Parent])
	return above + 1
}

// inheritKeys gives a class the keys of its parent, if that has a bucket for each: the class has one for each of them too, beneath
// that of the parent.
func (c pathChecker) inheritKeys(class, parent *Class) {
	if parent.Per == (Per{}) {
		return
	}
	const remedy = "leave it out"
	key := join("class", class.Name)
	if class.Per != (Per{}) && class.Per != parent.Per {
		c.wrong(key+".per", fmt.Sprintf("%q has a bucket per %v, and so have the classes beneath it", parent.Name, parent.Per), remedy)
	}
	if at := key + ".max_keys"; c.given(at) && class.MaxKeys != parent.MaxKeys {
		c.wrong(at, fmt.Sprintf("%q has at most %d keys, and so have the classes beneath it", parent.Name, parent.MaxKeys), remedy)
	}
	class.Per, class.MaxKeys = parent.Per, parent.MaxKeys
}

// amongSiblings checks the keys of a class about its parent and its siblings.
func (c pathChecker) amongSiblings(class *Class) {
	key := join("class", class.Name)
	if c.depth[class.Name] == 1 {
		if c.sound(key + ".parent") {
			c.rootClass(key, class)
		}
		return
	}
	kind := class.Rate.Kind()
	if p := c.above(class); p != nil && c.sound(join("class", p.Name)+".rate", key+".parent") {
		if of := p.Rate.Kind(); of != kind && (of == unit.Connections || kind == unit.Connections) {
			c.wrong(key+".parent", fmt.Sprintf("class %q counts %v, and its parent %q counts %v: no item counts as both", class.Name, kind, p.Name, of),
				"a parent that counts "+allowedAbove(kind))
		}
	}
	if c.sound(key + ".ceil") {
		c.ceil(key+".ceil", class)
	}
}

// allowedAbove says what the parent of a class may count.
func allowedAbove(kind unit.Kind) string {
	if kind == unit.Connections {
		return "connections too"
	}
	return "bytes or packets"
}

// rootClass checks that a class without a parent has no keys about siblings.
func (c pathChecker) rootClass(key string, class *Class) {
	defaults := DefaultClass(class.Name)
	for _, one := range []struct {
		name string
		set  bool
	}{
		{"ceil", class.Ceil != defaults.Ceil}, {"priority", class.Priority != defaults.Priority}, {"weight", class.Weight != defaults.Weight},
	} {
		if at := key + "." + one.name; (one.set || c.given(at)) && c.sound(at) {
			c.wrong(at, "the class has no parent, so it shares with nobody", "name a parent, or leave it out")
		}
	}
}

// ceil checks that a ceil is in the unit of the rate, not below the rate, and not above what
// the classes above allow.
func (c pathChecker) ceil(key string, class *Class) {
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
		if exactRate(class.Ceil).Cmp(peak(p, p.Limit())) > 0 {
			c.wrong(key, fmt.Sprintf("%q is above what class %q may send, %q", class.Ceil, p.Name, c.highestCeil(p)), "at most that")
			return
		}
	}
}

// peak returns the most that a class may send at a rate, in units per nanosecond. That is the
// rate, or what may leave at once, spread over a second, if that is more.
func peak(class *Class, rate unit.Rate) *big.Rat {
	most, atOnce := exactRate(rate), big.NewRat(class.Own().AtOnce(), int64(time.Second))
	if atOnce.Cmp(most) > 0 {
		return atOnce
	}
	return most
}

// exactRate returns a rate in units per nanosecond.
func exactRate(r unit.Rate) *big.Rat {
	units, ns := r.Exact()
	if units == 0 {
		return new(big.Rat)
	}
	return big.NewRat(units, ns)
}

// warnAssured warns of classes that may send less than the nearest classes below them, in the
// same unit, are assured in total.
func (c pathChecker) warnAssured() {
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
		sums[p].Add(sums[p], exactRate(class.Rate))
		of[p] = append(of[p], class.Name)
	}
	for i := range c.p.Classes {
		if p := &c.p.Classes[i]; sums[p] != nil && sums[p].Cmp(peak(p, p.Rate)) > 0 {
			together := "are assured together"
			if len(of[p]) == 1 {
				together = "is assured"
			}
			c.warn(join("class", p.Name)+".rate", fmt.Sprintf("%q is less than what %s %s", p.Rate, few(of[p]), together),
				fmt.Sprintf("lower the rates to %q in total, and give each a ceil of at most %q", p.Rate, c.highestCeil(p)))
		}
	}
}

// aboveIn returns the nearest class above a class that counts the same unit, or nil.
func (c pathChecker) aboveIn(class *Class) *Class {
	p := c.above(class)
	for p != nil && p.Rate.Kind() != class.Rate.Kind() {
		p = c.above(p)
	}
	return p
}

// highestCeil returns the highest ceil of a class below this one, as a file has it.
func (c pathChecker) highestCeil(class *Class) string {
	limit := class.Limit()
	if c.aboveIn(class) == nil && peak(class, limit).Cmp(exactRate(limit)) > 0 {
		return Burst{class.Own().AtOnce(), limit.Kind()}.String() + "/s"
	}
	return limit.String()
}

package policy

import (
	"fmt"
	"slices"
)

// coverBudget is how many pairs of rules are compared, so that a policy with very many rules
// takes far less than a second.
const coverBudget = 1_000_000

// warnRules warns of rules that can never match. It compares pairs, so it does not find a rule
// that only several earlier rules together cover.
func warnRules(r *report, p *Policy, inKernel map[string]bool) {
	if len(p.Rules) == 0 {
		return
	}
	c := coverage{Classifier: Compile(p), listeners: p.Listeners, budget: coverBudget}
	for i := range p.Rules {
		rule := &p.Rules[i]
		if c.firstListener(rule) == nil {
			if inKernel[rule.Class] && !rule.ProxyOnly() {
				continue // it is for packets of a device
			}
			r.warn(ruleKey(i), "it can never match: "+c.whyNowhere(rule), "change it or remove it")
			continue
		}
		if by, found := c.coveredBy(i); found {
			r.warn(ruleKey(i), fmt.Sprintf("it can never match: rule %d (%s) covers it", by+1, p.lineOf(&p.Rules[by])), "move it up or remove it")
		}
	}
}

// coverage finds earlier rules that cover a later one: they match all that it matches.
type coverage struct {
	*Classifier
	listeners []Listener
	budget    int // how many more pairs may be compared
}

// coveredBy returns the first rule that covers rule i. A rule that covers i also covers the
// first listener, port and source of i, so coveredBy looks only at the rules in their indexes.
func (c *coverage) coveredBy(i int) (by int, found bool) {
	by = i
	search := func(candidates []int) {
		for _, j := range candidates {
			if c.budget--; j >= by || c.budget < 0 {
				return
			}
			if c.covers(j, i) {
				by = j
				return
			}
		}
	}
	rule := c.rules[i].rule
	searchIndex := func(x *portIndex) {
		if search(x.others); len(rule.Port) > 0 {
			search(x.byPort[rule.Port[0].First])
		}
	}
	searchIndex(&c.anySource)
	if l := c.firstListener(rule); l != nil {
		searchIndex(&l.anySource)
	}
	if len(rule.Source) > 0 {
		for n, _ := c.bySource.Get(rule.Source[0]); n != 0; n = c.nodes[n].wider {
			search([]int{int(c.nodes[n].rule)})
			searchIndex(&c.more[c.nodes[n].more])
		}
	}
	return by, by < i
}

// firstListener returns the first listener that a rule applies to, or nil.
func (c *coverage) firstListener(rule *Rule) *listenerRules {
	for k := range c.listeners {
		if rule.appliesTo(&c.listeners[k]) {
			return c.Classifier.listeners[c.listeners[k].Name]
		}
	}
	return nil
}

// whyNowhere says why a rule applies to no listener.
func (c *coverage) whyNowhere(rule *Rule) string {
	if slices.ContainsFunc(c.listeners, func(l Listener) bool { return rule.isFor(&l) }) {
		return "no listener with this name, protocol and port has what the rule looks at"
	}
	return "no listener has this name, protocol and port together"
}

// covers reports whether each key of rule j matches all that the key of rule i matches.
func (c *coverage) covers(j, i int) bool {
	earlier, later := c.rules[j].rule, c.rules[i].rule
	return c.coversListeners(earlier, later) &&
		coversPorts(earlier.Port, later.Port) &&
		coversPorts(earlier.SourcePort, later.SourcePort) &&
		c.coversDestination(j, later) &&
		coversNames(earlier.User, later.User) &&
		coversNames(earlier.ServerName, later.ServerName) &&
		c.coversSource(j, later)
}

// coversListeners reports whether the earlier rule applies to all listeners of the later one.
func (c *coverage) coversListeners(earlier, later *Rule) bool {
	if len(earlier.Listener) == 0 && len(earlier.Protocol) == 0 {
		return true
	}
	return !slices.ContainsFunc(c.listeners, func(l Listener) bool {
		return later.appliesTo(&l) && !earlier.appliesTo(&l)
	})
}

// coversSource reports whether the sources of rule j hold all those of the later one.
func (c *coverage) coversSource(j int, later *Rule) bool {
	if len(c.rules[j].rule.Source) == 0 {
		return true
	}
	for _, prefix := range later.Source {
		n, _ := c.bySource.Get(prefix)
		for n != 0 && !c.nodeHas(n, j) {
			n = c.nodes[n].wider
		}
		if c.budget--; n == 0 || c.budget < 0 {
			return false
		}
	}
	return len(later.Source) > 0
}

// nodeHas reports whether a rule has the prefix of node n as a source.
func (c *coverage) nodeHas(n int32, rule int) bool {
	node := c.nodes[n]
	return int(node.rule) == rule || c.more[node.more].has(rule, c.rules[rule].port)
}

// coversDestination reports whether the destinations of rule j hold all those of the later one.
func (c *coverage) coversDestination(j int, later *Rule) bool {
	if c.rules[j].destination == nil {
		return true
	}
	for _, prefix := range later.Destination {
		if !c.rules[j].destination.LookupPrefix(prefix) {
			return false
		}
	}
	return len(later.Destination) > 0
}

// coversNames reports whether the earlier patterns have each of the later ones. No patterns match
// every name.
func coversNames(earlier, later []Pattern) bool {
	other := func(p Pattern) bool { return !slices.Contains(earlier, p) }
	return len(earlier) == 0 || len(later) > 0 && !slices.ContainsFunc(later, other)
}

// coversPorts reports whether the earlier ranges hold every port of the later ones. No ranges
// mean all ports.
func coversPorts(earlier, later []PortRange) bool {
	if len(earlier) == 0 {
		return true
	}
	for _, r := range later {
		for port := int(r.First); port <= int(r.Last); port++ {
			i := slices.IndexFunc(earlier, func(e PortRange) bool { return e.Contains(uint16(port)) })
			if i < 0 {
				return false
			}
			port = int(earlier[i].Last) // that range holds all ports up to here
		}
	}
	return len(later) > 0
}

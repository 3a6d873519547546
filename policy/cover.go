package policy

import (
	"fmt"
	"slices"
)

// coverBudget bounds how many pairs of rules are compared for the warning
// below: well below a second for a policy of very many rules.
const coverBudget = 1_000_000

// warnRules reports rules that can never match. It compares pairs, so a rule
// that several earlier ones cover only together is not found.
func warnRules(r *report, p *Policy, inKernel map[string]bool) {
	if len(p.Rules) == 0 {
		return
	}
	c := coverage{Classifier: Compile(p), listeners: p.Listeners, budget: coverBudget}
	for i := range p.Rules {
		rule := &p.Rules[i]
		if c.firstListener(rule) == nil {
			if inKernel[rule.Class] {
				continue // it is for what passes a device
			}
			r.warn(ruleKey(i), "it can never match: no listener has this name, protocol and port together", "change it or remove it")
			continue
		}
		if by, found := c.coveredBy(i); found {
			r.warn(ruleKey(i), fmt.Sprintf("it can never match: rule %d (line %d) covers it", by+1, p.Rules[by].Line), "move it up or remove it")
		}
	}
}

// coverage finds earlier rules that leave nothing to a later one.
type coverage struct {
	*Classifier
	listeners []Listener
	budget    int
}

// coveredBy returns the first rule that matches all that rule i matches.
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
		if search(x.others); len(rule.Port) > 0 { // who covers all ports covers the first
			search(x.byPort[rule.Port[0].First])
		}
	}
	searchIndex(&c.anySource)
	if l := c.firstListener(rule); l != nil {
		searchIndex(&l.anySource)
	}
	if len(rule.Source) > 0 {
		// Who covers all sources covers the first.
		for n, _ := c.bySource.Get(rule.Source[0]); n != 0; n = c.nodes[n].wider {
			search([]int{int(c.nodes[n].rule)})
			searchIndex(&c.more[c.nodes[n].more])
		}
	}
	return by, by < i
}

// firstListener returns the first listener that a rule applies to: who covers all
// of them covers that one. It is nil where there is none.
func (c *coverage) firstListener(rule *Rule) *listenerRules {
	for k := range c.listeners {
		if rule.appliesTo(&c.listeners[k]) {
			return c.Classifier.listeners[c.listeners[k].Name]
		}
	}
	return nil
}

// covers reports whether each key of rule j takes all that rule i's takes.
func (c *coverage) covers(j, i int) bool {
	earlier, later := c.rules[j].rule, c.rules[i].rule
	return c.coversListeners(earlier, later) &&
		coversPorts(earlier.Port, later.Port) &&
		coversPorts(earlier.SourcePort, later.SourcePort) &&
		c.coversDestination(j, later) &&
		c.coversSource(j, later)
}

func (c *coverage) coversListeners(earlier, later *Rule) bool {
	if len(earlier.Listener) == 0 && len(earlier.Protocol) == 0 {
		return true
	}
	return !slices.ContainsFunc(c.listeners, func(l Listener) bool {
		return later.appliesTo(&l) && !earlier.appliesTo(&l)
	})
}

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

func (c *coverage) nodeHas(n int32, rule int) bool {
	node := c.nodes[n]
	return int(node.rule) == rule || c.more[node.more].has(rule, c.rules[rule].port)
}

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

// coversPorts reports whether the earlier ranges, empty meaning all, hold
// every port of the later ones.
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
			port = int(earlier[i].Last) // the rest of that range holds too
		}
	}
	return len(later) > 0
}

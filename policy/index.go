package policy

import "slices"

// A portIndex holds rules by the ports that they match, so that one of very many is found
// quickly. All its lists are ascending.
type portIndex struct {
	byPort map[uint16][]int
	others []int // rules that are not in byPort
}

// maxIndexed is how many ports a rule in byPort may have, since it takes an entry for each. A
// rule with more ports is among the others.
const maxIndexed = 64

// add adds a rule. Rules are added in ascending order, and one may be added twice.
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

// indexed reports whether a rule with these ports is in byPort.
func indexed(ports []PortRange) bool {
	n := 0
	for _, r := range ports {
		n += int(r.Last-r.First) + 1
	}
	return 0 < n && n <= maxIndexed
}

// appendRule appends a rule unless it is already the last one. It is if it has a prefix or a
// port twice.
func appendRule(rules []int, rule int) []int {
	if n := len(rules); n > 0 && rules[n-1] == rule {
		return rules
	}
	return append(rules, rule)
}

// has reports whether the index contains a rule, which has these ports.
func (x *portIndex) has(rule int, ports []PortRange) bool {
	rules := x.others
	if indexed(ports) {
		rules = x.byPort[ports[0].First]
	}
	_, found := slices.BinarySearch(rules, rule)
	return found
}

package policy

import "slices"

// A portIndex holds rules by the port that they ask for, so that one of very many
// is found at once. All its lists are ascending.
type portIndex struct {
	byPort map[uint16][]int
	others []int // that are in none of those lists
}

// maxIndexed bounds the ports for which a rule is found by port: it takes an entry
// for each. A rule with more of them is among the others.
const maxIndexed = 64

// add adds a rule, which may be the one that was added last.
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

// indexed reports whether a rule with such ports is found by port.
func indexed(ports []PortRange) bool {
	n := 0
	for _, r := range ports {
		n += int(r.Last-r.First) + 1
	}
	return 0 < n && n <= maxIndexed
}

// appendRule appends a rule unless it is the last one already, as where it names a
// prefix or a port twice.
func appendRule(rules []int, rule int) []int {
	if n := len(rules); n > 0 && rules[n-1] == rule {
		return rules
	}
	return append(rules, rule)
}

// has reports whether a rule with such ports is there.
func (x *portIndex) has(rule int, ports []PortRange) bool {
	rules := x.others
	if indexed(ports) {
		rules = x.byPort[ports[0].First]
	}
	_, found := slices.BinarySearch(rules, rule)
	return found
}

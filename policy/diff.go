package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// Change is one difference between two policies.
type Change struct {
	Op   string `json:"op"`             // "+" for added, "-" for removed, "~" for changed
	What string `json:"what"`           // "daemon", "fleet", "class", "listener", "rule" or "tc"
	Name string `json:"name,omitempty"` // name of the fleet, class, listener or device, or number of the rule
	Key  string `json:"key,omitempty"`  // the key that changed; "" if all was added or removed
	Old  string `json:"old,omitempty"`  // the value of Key before, or what was removed
	New  string `json:"new,omitempty"`  // the value of Key now, or what was added
}

// String prints "~ class acme: rate 20mbit -> 40mbit", "+ listener web: ..."
// or "- rule 3: ...".
func (c Change) String() string {
	head := c.Op + " " + c.What
	if c.Name != "" {
		head += " " + c.Name
	}
	if c.Op == "~" {
		return fmt.Sprintf("%s: %s %s -> %s", head, c.Key, c.Old, c.New)
	}
	return head + ": " + c.Old + c.New
}

// Diff returns what changes if the policy new replaces old: first the daemon, then fleets, classes,
// listeners, rules and devices. It returns nothing if they do the same. Path, hash, line
// numbers, and the order of classes, listeners and devices do not matter.
func Diff(old, new *Policy) []Change {
	changes := diffFields("daemon", "", &old.Daemon, &new.Daemon, daemonFields)
	changes = append(changes, diffNamed("fleet", old.Fleets, new.Fleets, fleetName, fleetFields, DefaultFleet)...)
	changes = append(changes, diffNamed("class", old.Classes, new.Classes, className, classFields, DefaultClass)...)
	changes = append(changes, diffNamed("listener", old.Listeners, new.Listeners, listenerName, listenerFields, tcpListener)...)
	changes = append(changes, diffRules(old.Rules, new.Rules)...)
	return append(changes, diffNamed("tc", old.TC, new.TC, tcDevice, tcFields, DefaultTC)...)
}

// tcpListener returns the defaults that Diff compares a new or removed listener with.
func tcpListener(name string) Listener { return DefaultListener(name, TCP) }

// diffFields compares two sections with the same name, key by key.
func diffFields[T any](what, name string, old, new *T, fields []field[T]) (changes []Change) {
	for _, f := range fields {
		if !f.same(old, new) {
			changes = append(changes, Change{"~", what, name, f.name, f.print(old), f.print(new)})
		}
	}
	return changes
}

// diffNamed compares sections that have names. It returns first those that are removed, then
// the others in their new order.
func diffNamed[T any](what string, old, new []T, nameOf func(T) string, fields []field[T], defaults func(string) T) (changes []Change) {
	before, after := byName(old, nameOf), byName(new, nameOf)
	for i := range old {
		if name := nameOf(old[i]); after[name] == nil {
			changes = append(changes, Change{Op: "-", What: what, Name: name, Old: summary(&old[i], defaults(name), fields)})
		}
	}
	for i := range new {
		name := nameOf(new[i])
		if was := before[name]; was != nil {
			changes = append(changes, diffFields(what, name, was, &new[i], fields)...)
			continue
		}
		changes = append(changes, Change{Op: "+", What: what, Name: name, New: summary(&new[i], defaults(name), fields)})
	}
	return changes
}

func byName[T any](all []T, nameOf func(T) string) map[string]*T {
	m := make(map[string]*T, len(all))
	for i := range all {
		m[nameOf(all[i])] = &all[i]
	}
	return m
}

// summary prints the values that differ from the defaults, in one line.
func summary[T any](t *T, defaults T, fields []field[T]) string {
	var parts []string
	for _, f := range fields {
		switch {
		case f.same(t, &defaults):
		case f.family != nil:
			parts = append(parts, f.print(t)) // with the names
		default:
			parts = append(parts, f.name+" "+f.print(t))
		}
	}
	return strings.Join(parts, ", ")
}

// String prints the rule in one line: "source 10.1.0.0/16, class otp".
func (r Rule) String() string { return summary(&r, Rule{}, ruleFields) }

// identity tells the rule from all that match something else.
func (r Rule) identity() string { return identity(&r, ruleFields) }

// maxCompared bounds the size of the table in longestCommon.
const maxCompared = 4_000_000

// diffRules compares what rules say, so a rule that only moves to another line is not a change.
func diffRules(old, new []Rule) (changes []Change) {
	before, after := namesOf(old, Rule.identity), namesOf(new, Rule.identity)
	stayed, still := map[int]bool{}, map[int]bool{}
	for _, pair := range LongestCommon(before, after) {
		stayed[pair[0]], still[pair[1]] = true, true
	}
	for i, r := range old {
		if !stayed[i] {
			changes = append(changes, Change{Op: "-", What: "rule", Name: strconv.Itoa(i + 1), Old: r.String()})
		}
	}
	for i, r := range new {
		if !still[i] {
			changes = append(changes, Change{Op: "+", What: "rule", Name: strconv.Itoa(i + 1), New: r.String()})
		}
	}
	return changes
}

// LongestCommon returns the longest common subsequence of a and b, as ascending pairs of indexes.
// If there are too many pairs to compare, it returns only what is common at the beginning and at
// the end.
func LongestCommon(a, b []string) (pairs [][2]int) {
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		pairs = append(pairs, [2]int{start, start})
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	for _, pair := range longestCommon(a[start:len(a)-end], b[start:len(b)-end]) {
		pairs = append(pairs, [2]int{start + pair[0], start + pair[1]})
	}
	for ; end > 0; end-- {
		pairs = append(pairs, [2]int{len(a) - end, len(b) - end})
	}
	return pairs
}

// longestCommon is LongestCommon for lists that neither begin nor end with the same text.
func longestCommon(a, b []string) (pairs [][2]int) {
	if len(a)*len(b) > maxCompared {
		return nil
	}
	width := len(b) + 1
	length := make([]int32, (len(a)+1)*width) // of a[i:] and b[j:]
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			switch {
			case a[i] == b[j]:
				length[i*width+j] = length[(i+1)*width+j+1] + 1
			default:
				length[i*width+j] = max(length[(i+1)*width+j], length[i*width+j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case length[(i+1)*width+j] >= length[i*width+j+1]:
			i++
		default:
			j++
		}
	}
	return pairs
}

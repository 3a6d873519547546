package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// ruleKey names a rule as people count them.
func ruleKey(i int) string { return fmt.Sprintf("rule[%d]", i+1) }

// join appends a part to a dotted key, in quotes if it needs them.
func join(key, part string) string {
	if !isName(part) {
		part = strconv.Quote(part)
	}
	if key == "" {
		return part
	}
	return key + "." + part
}

// isName reports whether s is a bare key of TOML. The names of classes and
// listeners are bare keys too, and so fit into a label, a path and a shell.
func isName(s string) bool {
	for _, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

// item names the value i of the list at key, for its position.
func item(key string, i int) string { return fmt.Sprint(key, itemMark, i) }

// itemMark stands between a key and the number of a value in its list. No key
// has it: in one that is quoted it would be escaped.
const itemMark = "\x00"

// plainKey returns the key without the number of the value in a list.
func plainKey(key string) string {
	key, _, _ = strings.Cut(key, itemMark)
	return key
}

// plainName returns a name, or what stands for one where it cannot be one.
func plainName(name string) string {
	if isName(name) && len(name) <= 64 {
		return name
	}
	return "NAME"
}

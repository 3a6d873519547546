package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// ruleKey returns the key of rule i, which people count from 1.
func ruleKey(i int) string { return numbered("rule", i) }

// numbered returns the key of table i of the list at key. People count from 1.
func numbered(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i+1) }

// join appends a part to a dotted key, in quotes if TOML needs them.
func join(key, part string) string {
	if !isName(part) {
		part = strconv.Quote(part)
	}
	if key == "" {
		return part
	}
	return key + "." + part
}

// isName reports whether s is a bare key of TOML. The names of classes and listeners are bare
// keys, so they need no quotes in a label, a path or a shell.
func isName(s string) bool {
	for _, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

// item returns the key of item i of the list at key. Only positions have such keys.
func item(key string, i int) string { return fmt.Sprint(key, itemMark, i) }

// itemMark separates a key from the index of an item in its list. No key contains it: in a
// quoted key it would be escaped.
const itemMark = "\x00"

// plainKey returns a key without the index of an item.
func plainKey(key string) string {
	key, _, _ = strings.Cut(key, itemMark)
	return key
}

// plainName returns name if it is a valid name, or else "NAME".
func plainName(name string) string {
	if isName(name) && len(name) <= 64 {
		return name
	}
	return "NAME"
}

package policy

import (
	"fmt"
	"strings"
	"unicode"
)

// NoClass says that a class does not exist, and what to write instead. names are those of the classes
// that do.
func NoClass(name string, names []string) string {
	return noClass(name) + "; " + Hint(name, "classes", names)
}

// noClass says that a class does not exist.
func noClass(name string) string { return fmt.Sprintf("there is no class %q", name) }

// Hint says what to write instead of a name that does not exist: the most similar of names,
// or else all of them. all says in the plural what they name: "classes".
func Hint(name, all string, names []string) string {
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(names) == 0 {
		return "there is none"
	}
	const most = 12 // a policy can have thousands of classes
	if len(names) > most {
		return fmt.Sprintf("%s: %s and %d more", all, strings.Join(names[:most], ", "), len(names)-most)
	}
	return all + ": " + strings.Join(names, ", ")
}

// nearest returns the one of names that was probably meant, or "". Up to a third of the
// letters may be wrong, and one in a short name, but not all.
func nearest(name string, names []string) string {
	best, least := "", min(max(1, len(name)/3)+1, max(len(name), 1))
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
		if d := distance(name, n, least); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance returns how many letters have to be inserted, removed, replaced or swapped with
// their neighbour to turn a into b (optimal string alignment). It returns limit if there are
// at least so many.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, above[j+1]+1, above[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above, row = above, row, before
	}
	return min(above[len(b)], limit)
}

// notShown stands in place of what may be secret.
const notShown = "(not shown)"

// withoutQuery hides the query of a path, which may hold a key.
func withoutQuery(path string) string {
	if before, _, found := strings.Cut(path, "?"); found {
		return before + "?" + notShown
	}
	return path
}

// withoutQueries is withoutQuery for several.
func withoutQueries[S ~string](paths []S) []string {
	shown := make([]string, len(paths))
	for i, p := range paths {
		shown[i] = withoutQuery(string(p))
	}
	return shown
}

// plain returns a text that may stand in a line for people: in quotes if a character of it does more
// than appear, such as the end of a line.
func plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quote(s)
	}
	return s
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// list prints "a, b, c".
func list[V any](values []V) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ", ")
}

// quotedList prints `["a", "b", "c"]`.
func quotedList[V any](values []V) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = quote(fmt.Sprint(v))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// few prints values like list, but only the first of many.
func few[V any](values []V) string {
	const most = 4
	if len(values) <= most {
		return list(values)
	}
	return fmt.Sprintf("%s and %d more", list(values[:most]), len(values)-most)
}

// orList prints "a, b or c".
func orList(all []string) string {
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// orDash returns s, or "-" if it is empty.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// lineOf prints the place of a rule.
func lineOf(file string, line int) string {
	if file == "" {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("%s:%d", file, line)
}

package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Error is one mistake in a policy file, or one warning about it.
type Error struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`    // from 1; 0 if the mistake has no place in a file
	Column  int    `json:"column,omitempty"`  // from 1, in bytes
	Key     string `json:"key"`               // "class.acme.rate", "rule[2].source", or "syntax"
	Problem string `json:"problem"`           // the value, and what is wrong with it
	Allowed string `json:"allowed,omitempty"` // what to write instead; "" if nothing helps
}

// Error prints "FILE:LINE:COL: key: what is wrong; what is allowed".
func (e Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ":")
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", e.Line, e.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	b.WriteString(e.Key + ": " + e.Problem)
	if e.Allowed != "" {
		b.WriteString("; " + e.Allowed)
	}
	return b.String()
}

// Errors holds all mistakes of a policy, or all warnings, sorted by position.
type Errors []Error

// Error prints one line for each error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// sort sorts by position. Errors with equal positions keep their order.
func (es Errors) sort() {
	slices.SortStableFunc(es, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// A complaint is an error about one value. Its key and position are not known yet.
type complaint struct{ problem, allowed string }

func (c complaint) Error() string { return c.problem + "; " + c.allowed }

// complain returns a complaint. Only the problem is a format.
func complain(allowed, problem string, args ...any) error {
	return complaint{fmt.Sprintf(problem, args...), allowed}
}

// complaintOf returns an error as a complaint. It splits the text of an error of package
// unit, which ends with what is allowed, at the last "; ".
func complaintOf(err error) complaint {
	if c, ok := err.(complaint); ok {
		return c
	}
	text := err.Error()
	if i := strings.LastIndex(text, "; "); i >= 0 {
		return complaint{text[:i], text[i+2:]}
	}
	return complaint{problem: text}
}

// A report collects the mistakes and warnings of one policy. It knows the position of each
// key, so a check only has to name the key. One goroutine uses it.
type report struct {
	file     string
	lines    []int           // offset of the first byte of each line; nil without a file
	at       map[string]int  // offset of the value of each key, and of each item of a list
	bad      map[string]bool // keys with a mistake
	errs     Errors
	warnings Errors
}

func newReport(file string, data []byte) *report {
	r := &report{file: file, lines: []int{0}, at: map[string]int{}, bad: map[string]bool{}}
	for i, c := range data {
		if c == '\n' {
			r.lines = append(r.lines, i+1)
		}
	}
	return r
}

// wrong reports a mistake at a key.
func (r *report) wrong(key, problem, allowed string) {
	r.wrongAt(r.offset(key), key, problem, allowed)
}

// wrongAt reports a mistake at an offset of the file.
func (r *report) wrongAt(offset int, key, problem, allowed string) {
	key = plainKey(key)
	r.bad[key] = true
	r.errs = append(r.errs, r.newError(offset, key, problem, allowed))
}

// warn reports something at a key that is legal and probably not meant.
func (r *report) warn(key, problem, allowed string) {
	r.warnings = append(r.warnings, r.newError(r.offset(key), plainKey(key), problem, allowed))
}

// sound reports whether no mistake has been reported at any of the keys. A check asks this
// before it uses their values, so that one mistake is not reported several times.
func (r *report) sound(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return r.bad[key] })
}

// given reports whether the file contains one of the keys.
func (r *report) given(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { _, ok := r.at[key]; return ok })
}

// newError returns an Error with the line and column of an offset.
func (r *report) newError(offset int, key, problem, allowed string) Error {
	e := Error{File: r.file, Key: shorten(key), Problem: shorten(problem), Allowed: allowed}
	e.Line, e.Column = r.position(offset)
	return e
}

// maxRepeated is how many characters of a key or a value an error repeats. Valid ones are
// shorter, and so many suffice to recognize an invalid one.
const maxRepeated = 100

// wordOrText matches a text in quotes, or a word.
var wordOrText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[^\s"]+`)

// shorten cuts the very long words and texts of an error. A file may hold a key or a value of
// megabytes, and its error goes to terminals and logs.
func shorten(s string) string {
	if len(s) <= maxRepeated {
		return s
	}
	return wordOrText.ReplaceAllStringFunc(s, func(part string) string {
		runes := []rune(part)
		if len(runes) <= maxRepeated {
			return part
		}
		end := "…"
		if part[0] == '"' {
			end += `"`
		}
		return string(runes[:maxRepeated]) + end
	})
}

// position returns the line and column of an offset; both are 0 without a file.
func (r *report) position(offset int) (line, column int) {
	if r.lines == nil {
		return 0, 0
	}
	line, found := slices.BinarySearch(r.lines, offset)
	if found {
		line++
	}
	return line, offset - r.lines[line-1] + 1
}

// offset returns the offset of a key. If the key is missing, it returns the offset of the
// table that should contain it.
func (r *report) offset(key string) int {
	for key != "" {
		if offset, ok := r.at[key]; ok {
			return offset
		}
		key = key[:max(strings.LastIndexAny(key, "."+itemMark), 0)]
	}
	return 0
}

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

// sort sorts by position: by file in the order of files, and in a file by line and column.
// Errors with equal positions keep their order.
func (es Errors) sort(files []string) {
	order := make(map[string]int, len(files))
	for i, file := range files {
		order[file] = i
	}
	slices.SortStableFunc(es, func(a, b Error) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// A complaint is an error about one value. Its key and position are not known yet.
type complaint struct {
	problem, allowed string
	domain           *domain // what is allowed; nil if only the text says so
}

// A domain is what a value may be: one of some words, or an integer within bounds.
type domain struct {
	words       []string
	least, most int64
}

func (c complaint) Error() string { return c.problem + "; " + c.allowed }

// complain returns a complaint. Only the problem is a format.
func complain(allowed, problem string, args ...any) error {
	return complaint{problem: fmt.Sprintf(problem, args...), allowed: allowed}
}

// within adds to a complaint what is allowed.
func within(d domain, err error) error {
	c := complaintOf(err)
	c.domain = &d
	return c
}

// complaintOf returns an error as a complaint. It splits the text of an error of package
// unit, which ends with what is allowed, at the last "; ".
func complaintOf(err error) complaint {
	if c, ok := err.(complaint); ok {
		return c
	}
	text := err.Error()
	if i := strings.LastIndex(text, "; "); i >= 0 {
		return complaint{problem: text[:i], allowed: text[i+2:]}
	}
	return complaint{problem: text}
}

// A report collects the mistakes and warnings of one policy. It knows the position of each
// key, so a check only has to name the key. One goroutine uses it.
//
// Offsets count the bytes of all files of the policy, as if each followed the one before.
type report struct {
	sources  []source        // the files; nil without a file
	end      int             // offset of the end of the last file
	at       map[string]int  // offset of the value of each key, and of each item of a list
	bad      map[string]bool // keys with a mistake
	errs     Errors
	warnings Errors
}

// A source is a file of the policy.
type source struct {
	name  string
	lines []int // offset of the first byte of each line
}

// start returns the offset of the first byte of the file.
func (s *source) start() int { return s.lines[0] }

func newReport(file string, data []byte) *report {
	r := &report{at: map[string]int{}, bad: map[string]bool{}}
	r.add(file, data)
	return r
}

// add adds a file. What is reported next is in it.
func (r *report) add(file string, data []byte) {
	start := 0
	if len(r.sources) > 0 {
		start = r.end + 1 // the end of a file is a position too
	}
	s := source{name: file, lines: []int{start}}
	for i, c := range data {
		if c == '\n' {
			s.lines = append(s.lines, start+i+1)
		}
	}
	r.sources, r.end = append(r.sources, s), start+len(data)
}

// last returns the file that was added last.
func (r *report) last() *source { return &r.sources[len(r.sources)-1] }

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

// newError returns an Error with the place of an offset.
func (r *report) newError(offset int, key, problem, allowed string) Error {
	at := r.place(offset)
	return Error{File: at.file, Line: at.line, Column: at.column, Key: shorten(withoutSecrets(key)), Problem: shorten(withoutSecrets(problem)), Allowed: allowed}
}

// password matches an address up to its host, if there is a password in it, whatever that contains.
var password = regexp.MustCompile(`((?:"|//)(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?(?://)?[^"/:@]*):(?:[^"\\]|\\.)+@`)

// followed matches a text in quotes whose end may be a secret: a query, a setting, or the value of a field of HTTP.
var followed = regexp.MustCompile(`^("(?:header:[^:]*:|.*?(?:[?=]|:[ \\]))).+"$`)

// withoutSecrets hides the passwords of addresses, and the values that somebody wrote behind a name. Errors
// go to logs. The path of a Unix socket has no password.
func withoutSecrets(s string) string {
	s = password.ReplaceAllStringFunc(s, func(found string) string {
		if strings.HasPrefix(found, `"unix:`) {
			return found
		}
		return password.ReplaceAllString(found, "$1:xxxxx@")
	})
	return wordOrText.ReplaceAllStringFunc(s, func(part string) string { return followed.ReplaceAllString(part, `$1…"`) })
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

// A place is a position in a file of the policy.
type place struct {
	file         string
	line, column int // from 1
}

// String prints the place of something that another file mentions.
func (p place) String() string { return fmt.Sprintf("in %s on line %d", p.file, p.line) }

// place returns the place of an offset; the zero place without a file.
func (r *report) place(offset int) place {
	if r.sources == nil {
		return place{}
	}
	i, found := slices.BinarySearchFunc(r.sources, offset, func(s source, offset int) int { return cmp.Compare(s.start(), offset) })
	if !found {
		i--
	}
	s := &r.sources[i]
	line, found := slices.BinarySearch(s.lines, offset)
	if found {
		line++
	}
	return place{s.name, line, offset - s.lines[line-1] + 1}
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

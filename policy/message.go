package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"shaper/unit"
)

// LengthPrefix is the form of the length before a message of ISO 8583.
type LengthPrefix string

// The length prefixes.
const (
	Binary2 LengthPrefix = "binary2" // two bytes, big-endian
	ASCII4  LengthPrefix = "ascii4"  // four ASCII digits
	BCD2    LengthPrefix = "bcd2"    // four digits in two bytes
	VML     LengthPrefix = "vml"     // two bytes, big-endian, and two reserved bytes, as at Visa
)

// OnThrottle is how long a class pauses if its provider says "too fast", but not for how
// long.
type OnThrottle struct {
	Pause unit.Duration `json:"pause"` // the first pause; it doubles each time until a message succeeds
	Max   unit.Duration `json:"max"`   // the longest pause, also if the provider asks for more
}

// DefaultOnThrottle is a pause of a second, because most providers count per second, and of
// at most a minute, because some providers block for so long.
var DefaultOnThrottle = OnThrottle{Pause: unit.Duration(time.Second), Max: unit.Duration(time.Minute)}

// String prints the table as in a policy file, and the zero OnThrottle as "".
func (o OnThrottle) String() string {
	if o == (OnThrottle{}) {
		return ""
	}
	return fmt.Sprintf("{ pause = %q, max = %q }", o.Pause, o.Max)
}

var onThrottleFields = []field[OnThrottle]{
	quantity("pause", func(o *OnThrottle) *unit.Duration { return &o.Pause }, parseWait),
	quantity("max", func(o *OnThrottle) *unit.Duration { return &o.Max }, parseWait),
}

// Pattern is what a rule compares a text of a message with. A "*" at its beginning, at its
// end, or at both, stands for any text. Only hosts are compared without regard to case.
type Pattern string

const patternForm = `a text, where "*" as the first or last character stands for any text, like "/v1/*"`

// parsePattern reads a pattern.
func parsePattern(s string) (Pattern, error) {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return "", complain(patternForm, "%q cannot be in a message", s)
	}
	if middle := strings.TrimSuffix(strings.TrimPrefix(s, "*"), "*"); strings.Contains(middle, "*") {
		return "", complain(patternForm, "%q has a \"*\" in the middle", s)
	}
	return Pattern(s), nil
}

// parseHostPattern is parsePattern in lower case.
func parseHostPattern(s string) (Pattern, error) { return parsePattern(strings.ToLower(s)) }

// pathField is the key path of a rule. A path has no query; what somebody writes there may be a key.
var pathField = func() field[Rule] {
	f := many("path", patternForm, func(r *Rule) *[]Pattern { return &r.Path }, parsePattern)
	f.get = func(r *Rule) string { return list(withoutQueries(r.Path)) }
	return f
}()

// HeaderPatterns is a key header:NAME of a rule: what the field with that name may be.
type HeaderPatterns struct {
	Name     string    `json:"name"`
	Patterns []Pattern `json:"patterns"`
}

// String prints it as the rest of a line of a rule. It does not tell the patterns, which may be keys of clients.
func (h HeaderPatterns) String() string { return headerKey + h.Name + " " + notShown }

// headerFields are the keys header:NAME of a rule.
var headerFields = field[Rule]{
	name: headersKey, takes: texts | lists, form: patternForm, isSecret: true,
	set: func(r *Rule, s string) error { return r.addHeader("NAME", s) },
	get: func(r *Rule) string { return list(r.Header) },
	apart: func(r *Rule) string {
		all := []string{}
		for _, h := range r.Header {
			all = append(all, h.Name, quotedList(h.Patterns))
		}
		return quotedList(all)
	},
	family: func(name string, r *Rule, s string) error { return r.addHeader(name, s) },
}

// addHeader adds a pattern for a field with a name.
func (r *Rule) addHeader(name, pattern string) error {
	if _, err := parseHeaderName(name); err != nil {
		return err
	}
	p, err := parsePattern(pattern)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(r.Header, func(h HeaderPatterns) bool { return strings.EqualFold(h.Name, name) })
	if i < 0 {
		i, r.Header = len(r.Header), append(r.Header, HeaderPatterns{Name: name})
	}
	r.Header[i].Patterns = append(r.Header[i].Patterns, p)
	return nil
}

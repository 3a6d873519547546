package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// A sectionWith is a section of each kind, with what it needs.
var sectionWith = map[string]struct{ header, needs string }{
	"daemon": {"[daemon]", ""}, "class": {"[class.x]", "rate = \"1 messages/s\"\n"}, "rule": {"[[rule]]", "class = \"a\"\n"},
	"listener": {"[listener.x]", "listen = \"127.0.0.1:0\"\nprotocol = \"http\"\nupstream = \"192.0.2.1:80\"\nclass = \"a\"\n"},
	"tc":       {"[tc.x]", "class = \"a\"\n"}, "fleet": {"[fleet.x]", "address = \"192.0.2.1:1\"\n"},
}

// settings yields each key that a policy may contain, and those of its tables, with a section that has a value there.
func settings(yield func(name string, isList bool, with func(value string) string)) {
	for _, s := range Describe() {
		var walk func(name string, keys []Setting, with func(key, value string) string)
		walk = func(name string, keys []Setting, with func(key, value string) string) {
			for _, k := range keys {
				key := k.Name
				if family, ok := strings.CutSuffix(key, "NAME"); ok {
					key = strconv.Quote(family + "X-Api-Key")
				}
				yield(name+"."+k.Name, k.List, func(value string) string { return with(key, value) })
				walk(name+"."+k.Name, k.Keys, func(inner, value string) string { return with(key, "{ "+inner+" = "+value+" }") })
			}
		}
		walk(s.Name, s.Keys, func(key, value string) string {
			text := sectionWith[s.Name].header + "\n" + key + " = " + value + "\n"
			for line := range strings.Lines(sectionWith[s.Name].needs) {
				if !strings.HasPrefix(line, key+" = ") {
					text += line
				}
			}
			return text
		})
	}
}

// Whatever somebody writes for any key, errors have a place, are printable and short, and tell no secret; and what
// check and diff print of a policy without errors is printable.
func TestEveryKeyIsHostile(t *testing.T) {
	const rest = "[class.a]\nrate = \"1 messages/s\"\n[listener.a]\nlisten = \"127.0.0.1:0\"\nprotocol = \"http\"\nupstream = \"discard:\"\nclass = \"a\"\n"
	values := map[string]string{
		"empty": "", "long": strings.Repeat("x", 4<<10), "NUL": "a\x00b", "direction": "a\u202eb", "escape": "a\x1b[31mb", "line": "a\nb",
		"URL": "http://me:s3cret@api.example/", "user": "me:s3cret@api.example:80", "query": "/x?token=s3cret", "address with a query": "api.example:80?token=s3cret",
		"field": "Authorization: Bearer s3cret", "setting": "password=s3cret",
	}
	none, keys, valid := mustParse(t, rest), 0, 0
	settings(func(name string, isList bool, with func(string) string) {
		keys++
		for kind, value := range values {
			value := tomlQuote(value)
			if isList {
				value = "[" + value + "]"
			}
			what := name + ": " + kind
			p, _, err := Parse("p.toml", []byte(rest+with(value)))
			if err == nil {
				valid++
				checkPrints(t, what, none, p)
				continue
			}
			var all Errors
			if !errors.As(err, &all) {
				t.Errorf("%s: %v", what, err)
			}
			for _, e := range all {
				checkError(t, what, e)
			}
		}
	})
	if t.Logf("%d keys, %d values are valid", keys, valid); keys < 100 || valid < 100 {
		t.Error("that is too few")
	}
}

// checkPrints checks what is printed of a policy.
func checkPrints(t *testing.T, what string, none, p *Policy) {
	t.Helper()
	var b strings.Builder
	if err := p.WriteTree(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, c := range append(Diff(none, p), Diff(p, none)...) {
		lines = append(lines, c.String())
	}
	for _, line := range lines {
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: not printable: %q", what, line)
		}
	}
	if n := len(lines); n > 120 {
		t.Errorf("%s: %d lines", what, n)
	}
}

// checkError checks an error, which goes to a terminal or a log.
func checkError(t *testing.T, what string, e Error) {
	t.Helper()
	switch line := e.Error(); {
	case e.Line == 0 || e.Column == 0:
		t.Errorf("%s: without a place: %s", what, line)
	case len(line) > 1500:
		t.Errorf("%s: %d bytes: %.200s", what, len(line), line)
	case strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }):
		t.Errorf("%s: not printable: %q", what, line)
	case strings.Contains(line, "s3cret"):
		t.Errorf("%s: a secret is told: %s", what, line)
	}
}

// tomlQuote quotes a text for TOML.
func tomlQuote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

package policy

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A doer follows remedies of one form literally. It returns a file for each way that the
// remedy offers.
type doer struct {
	form *regexp.Regexp
	do   func(f faulty, said []string) []string
	// some says that the remedy lists possible values, and some of them may not fit the rest
	// of the file. Then another error may follow.
	some bool
}

// faulty is a file and one of its errors.
type faulty struct {
	text string
	Error
}

// doers are the forms of remedies. A remedy may have several of them.
var doers = []doer{
	{regexp.MustCompile(`^did you mean "(.*)"\?$`), func(f faulty, said []string) []string { return []string{f.put(said[1])} }, false},
	{regexp.MustCompile(`\b[Ll]eave (?:it|the key) out\b`), func(f faulty, _ []string) []string { return []string{f.without()} }, false},
	{regexp.MustCompile(`\bset (\w+) = (".*?")(?:, (".*?"))?(?: or (".*?"))?$`), func(f faulty, said []string) (all []string) {
		for _, value := range said[2:] {
			if value != "" {
				all = append(all, f.set(said[1], value))
			}
		}
		return all
	}, false},
	{regexp.MustCompile(`\badd (\w+) = (".*?")`), func(f faulty, said []string) []string { return []string{f.set(said[1], said[2])} }, false},
	{regexp.MustCompile(`\badd a (\w+) that is a multiple of (".*?")`), func(f faulty, said []string) []string { return []string{f.set(said[1], said[2])} }, false},
	{regexp.MustCompile(`^(?:at (?:most|least)|a multiple of|the prefix is) "(.*?)"`), func(f faulty, said []string) []string { return []string{f.put(said[1])} }, false},
	{regexp.MustCompile(`^at (?:most that|most max|least the rate)$`), func(f faulty, _ []string) []string {
		inQuotes := regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(f.Problem, -1)
		if strings.HasSuffix(f.Allowed, "the rate") { // it is told first of two that follow
			return []string{f.put(inQuotes[1][1])}
		}
		return []string{f.put(inQuotes[len(inQuotes)-1][1])}
	}, false},
	{regexp.MustCompile(`^(?:"[^" ]*"(?:, | or )?){2,}(?:, a list of them)?`), func(f faulty, _ []string) (all []string) {
		for _, one := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(f.Allowed, -1) {
			if one[1] != "host:port" { // stands for one
				all = append(all, f.put(one[1]))
			}
		}
		return all
	}, true},
	{regexp.MustCompile(`^true or false$`), func(f faulty, _ []string) []string { return []string{f.replace("true"), f.replace("false")} }, true},
	{regexp.MustCompile(` is (?:bounded by .*)?like "`), func(f faulty, _ []string) (all []string) {
		for _, one := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(f.Allowed, -1) {
			if one[1] != "systemd:NAME" && one[1] != "" {
				all = append(all, f.put(one[1]))
			}
		}
		return all
	}, true},
	{regexp.MustCompile(`^an integer from (\d+)(?:, the first,)? to (\d+)$`), func(f faulty, said []string) []string {
		return []string{f.replace(said[1]), f.replace(said[2])}
	}, true},
}

// offset returns the offset to which the error points.
func (f faulty) offset() int {
	before := strings.Join(strings.SplitAfter(f.text, "\n")[:f.Line-1], "")
	return len(before) + f.Column - 1
}

// token matches the value or the key at that offset.
var token = regexp.MustCompile(`^(?:"(?:[^"\\]|\\.)*"|'[^']*'|\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\]|\{[^}\n]*\}|[^\s,\]=}]+)`)

// replace replaces the value or key at that offset by a text, which has quotes if it needs
// them.
func (f faulty) replace(by string) string {
	at := f.offset()
	return f.text[:at] + by + f.text[at+len(token.FindString(f.text[at:])):]
}

// put puts a string or a key at that offset. It adds a missing key.
func (f faulty) put(by string) string {
	if strings.HasPrefix(f.Problem, "it is missing") {
		return f.set(f.Key[strings.LastIndex(f.Key, ".")+1:], `"`+by+`"`)
	}
	if isKey := !strings.ContainsAny(f.text[f.offset():f.offset()+1], `"'[0123456789-+tf{`); isKey || f.text[f.offset()-1] == '[' {
		return f.replace(by)
	}
	return f.replace(`"` + by + `"`)
}

// without removes the line.
func (f faulty) without() string {
	lines := strings.SplitAfter(f.text, "\n")
	return strings.Join(slices.Delete(lines, f.Line-1, f.Line), "")
}

// inTable matches the key of something in a table within a line.
var inTable = regexp.MustCompile(`\.(also|upstream)(\[\d+\])?\.`)

// set sets a key in the section, or in the table within a line at which the error points.
func (f faulty) set(key, value string) string {
	if at := strings.LastIndex(f.text[:f.offset()+1], "{") + 1; inTable.MatchString(f.Key) {
		return f.text[:at] + " " + key + " = " + value + "," + f.text[at:]
	}
	lines := strings.SplitAfter(f.text, "\n")
	header := f.Line - 1
	for !strings.HasPrefix(lines[header], "[") {
		header--
	}
	for i := header + 1; i < len(lines) && !strings.HasPrefix(lines[i], "["); i++ {
		if strings.HasPrefix(lines[i], key+" ") {
			lines = slices.Delete(lines, i, i+1)
			break
		}
	}
	return strings.Join(slices.Insert(lines, header+1, key+" = "+value+"\n"), "")
}

// after returns the error at the same position of the mended file.
func (f faulty) after(mended string, some bool) (found []Error) {
	_, warnings, err := Parse("mended.toml", []byte(mended))
	var all Errors
	errors.As(err, &all)
	for _, e := range append(all, warnings...) {
		if e.Key == "syntax" || e.Key == f.Key && (!some || e.Allowed == f.Allowed) {
			found = append(found, e)
		}
	}
	return found
}

// mend follows the remedy. It returns false if no doer knows its form.
func (f faulty) mend(t *testing.T) (done bool) {
	for _, d := range doers {
		said := d.form.FindStringSubmatch(f.Allowed)
		if said == nil {
			continue
		}
		for _, mended := range d.do(f, said) {
			done = true
			for _, still := range f.after(mended, d.some) {
				t.Errorf("%v\nafter following that:\n%s\nit says: %v", f.Error, mended, still)
			}
		}
	}
	return done
}

// To follow the remedy of an error literally removes the error.
func TestRemedies(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	done, told := 0, 0
	for _, file := range files {
		text := string(mustRead(t, file))
		_, _, err := Parse(file, []byte(text))
		var all Errors
		if !errors.As(err, &all) {
			t.Fatal(err)
		}
		if slices.ContainsFunc(all, func(e Error) bool { return e.Key == "syntax" }) {
			continue // what else is said of it is said of the other files, too
		}
		for _, e := range all {
			if told++; (faulty{text, e}).mend(t) {
				done++
			}
		}
	}
	if t.Logf("%d of %d remedies can be done to the letter", done, told); done < 100 {
		t.Error("too few remedies could be followed")
	}
}

// To follow the remedy of a warning, here by hand, removes the warning.
func TestRemediesOfWarnings(t *testing.T) {
	const listener = "[listener.x]\nlisten = \"127.0.0.1:2775\"\nprotocol = \"smpp\"\nupstream = \"192.0.2.1:2775\"\nclass = \"a\"\n"
	const a = "[class.a]\nrate = \"20 messages/s\"\n"
	const rule = "[[rule]]\nsource = \"10.0.0.0/8\"\nclass = \"a\"\n"
	const entry = "[class.a]\nrate = \"1mbit\"\n[listener.x]\nlisten = \"127.0.0.1:1080\"\nmode = \"socks5\"\nallow = \"2001:db8:1::7:80\"\nclass = \"a\"\n"
	const narrower = "[[rule]]\nsource = \"10.1.0.0/16\"\nclass = \"a\"\n"
	shared := strings.Replace(a, "\n", "\nparent = \"b\"\n", 1) + listener
	const stopped = "ceil = \"20 messages/s\"\n[[class.a.at]]\nto = \"06:00\"\nrate = \"0 messages/s\"\n"
	quota := "[class.b]\nrate = \"10 messages/h\"\nalgorithm = \"fixed-window\"\n"
	for name, tt := range map[string]struct{ text, said, old, new string }{
		"a rate of 0": {"[class.a]\nrate = \"0 messages/s\"\n" + listener, "a rate above 0", `"0 messages`, `"1 messages`},
		"a rate of 0 that does not stop": {strings.Replace(shared, listener, stopped+listener, 1) + "[class.b]\nrate = \"20 messages/s\"\n", `ceil = "0 messages/s" too, if nothing is to leave`,
			`"0 messages/s"`, "\"0 messages/s\"\nceil = \"0 messages/s\""},
		"a rate of 0 at all times": {a + "[[class.a.at]]\nrate = \"0 messages/s\"\n" + listener, "days, from or to, unless this is to block", "at]]", "at]]\nto = \"06:00\""},
		"quiet at all times":       {a + "[[class.a.quiet]]\n" + listener, "days, from or to, unless this is to block", "quiet]]", "quiet]]\nto = \"06:00\""},
		"a JSONPath": {strings.Replace(a, "\n", "\ncost = { json = \"$.a['b'][0]\" }\n", 1) + strings.Replace(listener, "smpp", "http", 1), `write "a.b.0"`,
			"$.a['b'][0]", "a.b.0"},
		"unused": {a + listener + "[class.b]\nrate = \"1mbit\"\n", "name it in a listener or a rule", "upstream =", "return_class = \"b\"\nupstream ="},
		"sessions of what goes back": {a + listener + "return_class = \"b\"\n[class.b]\nrate = \"1mbit\"\nmax_connections = 5\n",
			"put it into a class that a listener or a rule names as class", "\"1mbit\"\nmax_connections = 5\n", "\"1mbit\"\n[[rule]]\nclass = \"c\"\n[class.c]\nrate = \"1mbit\"\nmax_connections = 5\n"},
		"a bucket for each connection": {a + "per = \"connection\"\nmax_connections = 5\n" + listener, `per = "source"`, `"connection"`, `"source"`},
		"less than is assured": {shared + "[class.b]\nrate = \"10 messages/s\"\n", `lower the rates to "10 messages/s" in total, and give each a ceil of at most "10 messages/s"`,
			`"20 messages/s"`, "\"10 messages/s\"\nceil = \"10 messages/s\""},
		"less than is assured by a window": {shared + quota, `lower the rates to "10 messages/h" in total, and give each a ceil of at most "10 messages/s"`,
			`"20 messages/s"`, "\"10 messages/h\"\nceil = \"10 messages/s\""},
		"in flight where nothing answers": {strings.Replace(shared, "smpp", "lines", 1) + "[class.b]\nrate = \"30 messages/s\"\nin_flight = 5\n", "leave it out", "in_flight = 5\n", ""},
		"covered, up":                     {a + listener + rule + narrower, "move it up or remove it", rule + narrower, narrower + rule},
		"covered, removed":                {a + listener + rule + narrower, "move it up or remove it", narrower, ""},
		"no port, changed":                {a + listener + "[[rule]]\nport = 80\nclass = \"a\"\n", "change it or remove it", "port = 80", "port = 2775"},
		"a port":                          {entry, `"[2001:db8:1::7]:80"`, "2001:db8:1::7:80", "[2001:db8:1::7]:80"},
		"no port":                         {entry, `"[2001:db8:1::7:80]:1-65535"`, "2001:db8:1::7:80", "[2001:db8:1::7:80]:1-65535"},
		"nobody is verified":              {a + listener + "upstream_tls = { insecure = true }\n", "ca = the upstream's own certificate", "insecure = true", `ca = "ca.pem"`},
	} {
		t.Run(name, func(t *testing.T) {
			warned := func(text string) string {
				_, warnings, err := Parse("", []byte(text))
				if err != nil {
					t.Fatalf("%v in\n%s", err, text)
				}
				return warnings.Error()
			}
			if said := warned(tt.text); !strings.Contains(said, tt.said) {
				t.Errorf("it says %s", said)
			}
			if still := warned(strings.Replace(tt.text, tt.old, tt.new, 1)); still != "" {
				t.Errorf("after following that, it says %s", still)
			}
		})
	}
}

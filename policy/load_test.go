package policy

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaper/unit"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pelletier/go-toml/v2"
)

const shipped = "../shaper.toml"

var update = flag.Bool("update", false, "write the messages into testdata/bad")

// TestBad loads one file for each mistake and compares its errors with the .txt file beside
// it. The files all-*.toml contain several mistakes.
func TestBad(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.toml")
	if err != nil || len(files) < 150 {
		t.Fatalf("found %d bad files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".toml"), func(t *testing.T) {
			p, _, err := Parse(name, mustRead(t, file))
			var got Errors
			if p != nil || !errors.As(err, &got) {
				t.Fatalf("policy %v, error %v; want Errors", p, err)
			}
			beside := strings.TrimSuffix(file, ".toml") + ".txt"
			if *update {
				if err := os.WriteFile(beside, []byte(err.Error()+"\n"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(mustRead(t, beside)), err.Error()+"\n"); diff != "" {
				t.Errorf("the messages differ (-want +got):\n%s", diff)
			}
			if !strings.HasPrefix(name, "all-") && len(got) != 1 {
				t.Errorf("one mistake gave %d errors", len(got))
			}
		})
	}
}

// Errors do not repeat very long keys and values of the file.
func TestLongValues(t *testing.T) {
	for _, file := range []string{"testdata/bad/all-long.toml", "testdata/bad/all-long-names.toml"} {
		_, _, err := Load(file)
		var got Errors
		if !errors.As(err, &got) {
			t.Fatal(err)
		}
		for _, e := range got {
			if len(e.Key)+len(e.Problem) > 4*maxRepeated {
				t.Errorf("an error of %d bytes: %.200s", len(e.Key)+len(e.Problem), e.Problem)
			}
		}
	}
}

// If very many names do not exist, only the first errors propose a name.
func TestManyDanglingNames(t *testing.T) {
	text := "[class.acme]\nrate = \"1mbit\"\n[listener.x]\nlisten = \"127.0.0.1:1\"\nupstream = \"echo:\"\nclass = \"acme\"\n" +
		strings.Repeat("[[rule]]\nclass = \"acne\"\n", maxHints+1)
	_, _, err := Parse("t.toml", []byte(text))
	var got Errors
	if !errors.As(err, &got) || len(got) != maxHints+1 {
		t.Fatal(err)
	}
	if first, last := got[maxHints-1].Allowed, got[maxHints].Allowed; first != `did you mean "acme"?` || last != "one of the classes of this file" {
		t.Errorf("the first and the last error allow %q and %q", first, last)
	}
}

func TestErrorFields(t *testing.T) {
	_, _, err := Load("testdata/bad/all-five.toml")
	var got Errors
	if !errors.As(err, &got) || len(got) != 5 {
		t.Fatalf("got %v, want five errors", err)
	}
	want := Error{
		File: "testdata/bad/all-five.toml", Line: 13, Column: 12, Key: "listener.acme.class",
		Problem: `there is no class "acne"`, Allowed: `did you mean "acme"?`,
	}
	if diff := cmp.Diff(want, got[3]); diff != "" {
		t.Error(diff)
	}
}

func TestLoadEveryKey(t *testing.T) {
	p, warnings, err := Load("testdata/good/full.toml")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	seconds := func(n int) unit.Duration { return unit.Duration(time.Duration(n) * time.Second) }
	packets := func(n int64) unit.Count { return unit.Count{N: n, Kind: unit.Packets} }
	dns := DefaultListener("dns", UDP)
	dns.Listen, dns.Upstream, dns.Class = []string{":53"}, []string{Discard}, "dns"
	want := &Policy{
		Path: "testdata/good/full.toml",
		Hash: p.Hash,
		Daemon: Daemon{
			Control: "/tmp/shaper.sock", HTTP: "", HTTPHosts: []string{"shaper.example.com", "s1"}, Drain: seconds(60), Punctual: false,
		},
		Classes: []Class{
			{MaxKeys: 65536, Name: "uplink", Algorithm: Leaky, Rate: rate("40mbit"), Shared: "prod", Queue: DefaultClass("").Queue, Priority: 4, Weight: 1},
			{MaxKeys: 65536, Name: "acme", Parent: "uplink", Algorithm: Leaky, Rate: rate("20mbit"), Ceil: rate("30mbit"), Headroom: 30_000,
				Queue: Queue{Items: packets(500)}, MaxWait: seconds(8), Priority: 0, Weight: 3},
			{MaxKeys: 65536, Name: "payments", Algorithm: Token, Rate: rate("2mbit"), Burst: Burst{65536, unit.Bytes}, Queue: Queue{Bytes: 256 * unit.KiB}, Overflow: Refuse, Priority: 4, Weight: 1},
			{MaxKeys: 65536, Name: "logins", Algorithm: Leaky, Rate: rate("5 connections/s"), Queue: Queue{Items: unit.Count{N: 20, Kind: unit.Connections}}, Overflow: Wait, Shadow: true, Priority: 4, Weight: 1},
			{Per: Per{{By: BySource, IPv4: 24, IPv6: 64}}, MaxKeys: 1000, Name: "dns", Algorithm: Token, Rate: rate("200 packets/s"), Burst: Burst(packets(50)), Queue: DefaultClass("").Queue, Priority: 4, Weight: 1},
		},
		Listeners: []Listener{
			{
				Name: "acme", Listen: []string{"127.0.0.1:2775", "[::1]:2775", "systemd:acme"}, Protocol: TCP, Mode: Forward,
				Upstream: []string{"smpp-1.acme.example:2775", "192.0.2.7:2775"}, Class: "acme", ReturnClass: "payments",
				Balance: InOrder, Health: Health{Every: seconds(10), Timeout: seconds(1), TCP: true, Rise: 2, Fall: 5},
				Bind: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")}, ConnectTimeout: seconds(2), IdleTimeout: seconds(600), HalfCloseTimeout: seconds(30), MaxSessions: 100, MaxSessionAge: seconds(3600),
				TLS: &ServerTLS{Cert: "testdata/good/tls/acme.pem", Key: "/etc/shaper/acme.key", ClientCA: "testdata/good/tls/clients.pem"},
				UpstreamTLS: &ClientTLS{CA: "testdata/good/tls/ca.pem", Cert: "testdata/good/tls/we.pem", Key: "testdata/good/tls/we.key",
					ServerName: "smpp.acme.example"},
			},
			dns,
		},
		Fleets: []Fleet{{
			Name: "prod", Address: []string{"10.0.0.5:26379", "10.0.0.6:26379"}, Sentinel: "main", Username: "shaper",
			PasswordFile: "testdata/good/redis.password", SentinelUsername: "watcher", SentinelPasswordFile: "/etc/shaper/sentinel.password", TLS: &ClientTLS{CA: "testdata/good/ca.pem", ServerName: "redis.example"},
			Prefix: "accounts:", Fallback: Fallback{Rate: rate("5mbit")}, Deadline: unit.Duration(20 * time.Millisecond),
		}},
		Rules: []Rule{{
			Listener: []string{"acme"}, Protocol: []Protocol{TCP},
			Source:      prefixes("10.1.0.0/16", "fd00:1::/64", "10.2.0.1/32"),
			SourcePort:  []PortRange{{1024, 65535}, {500, 500}},
			Destination: prefixes("192.0.2.0/24"),
			Port:        []PortRange{{2775, 2775}},
			Class:       "logins", ReturnClass: "acme", File: "testdata/good/full.toml", Line: 81,
		}},
	}
	if diff := cmp.Diff(want, p, comparers...); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

var comparers = []cmp.Option{
	cmpopts.IgnoreUnexported(Policy{}),
	cmp.Comparer(func(a, b unit.Rate) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

func rate(s string) unit.Rate {
	r, err := unit.ParseRate(s)
	if err != nil {
		panic(err)
	}
	return r
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// A key that the file leaves out has the default of the manual.
func TestDefaults(t *testing.T) {
	p := mustParse(t, `
[class.a]
rate = "20mbit"
[listener.t]
listen = "127.0.0.1:1"
upstream = "echo:"
class = "a"
[listener.u]
listen = "127.0.0.1:1"
protocol = "udp"
upstream = "echo:"
class = "a"
`)
	if d := p.Daemon; d.Control != "/run/shaper/control.sock" || d.HTTP != "127.0.0.1:9780" || d.Drain.String() != "30s" {
		t.Errorf("daemon: %+v", d)
	}
	if c := p.Classes[0]; c.Algorithm != Leaky || c.Queue.String() != "1000 items or 1MiB" || c.Burst != (Burst{}) || c.MaxWait != 0 || c.Headroom != 0 {
		t.Errorf("class: %+v", c)
	}
	if l := p.Listeners[0]; l.Protocol != TCP || l.Mode != Forward || l.ConnectTimeout.String() != "10s" || l.IdleTimeout.String() != "1h" || l.HalfCloseTimeout.String() != "5min" || l.MaxSessions != 65536 || len(l.Bind) > 0 {
		t.Errorf("listener: %+v", l)
	}
	if idle := p.Listeners[1].IdleTimeout; idle.String() != "1min" {
		t.Errorf("idle_timeout of udp: %v", idle)
	}
}

func TestOverflowFor(t *testing.T) {
	bytes, conns := Class{Rate: rate("1mbit")}, Class{Rate: rate("5 connections/s")}
	set := Class{Rate: rate("1mbit"), Overflow: Refuse}
	for _, tt := range []struct {
		class Class
		proto Protocol
		want  Overflow
	}{
		{bytes, TCP, Wait}, {bytes, UDP, Drop},
		{conns, TCP, Refuse},
		{set, TCP, Refuse}, {set, UDP, Drop},
	} {
		if got := tt.class.OverflowFor(tt.proto); got != tt.want {
			t.Errorf("%+v over %s: %s, want %s", tt.class, tt.proto, got, tt.want)
		}
	}
}

func TestShipped(t *testing.T) {
	p, warnings, err := Load(shipped)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	first := p.Listeners[0]
	if first.Protocol != TCP || first.Listen[0] != "127.0.0.1:7007" || first.Upstream[0] != Echo {
		t.Errorf("the first listener is %+v", first)
	}
	if p.Daemon.Control != "../run/control.sock" {
		t.Errorf("control is %q, want a path that begins at the directory of the file", p.Daemon.Control)
	}
}

// A file that is cut at any byte is refused, unless it still gives the whole policy.
func TestTruncated(t *testing.T) {
	data := mustRead(t, shipped)
	whole, _, err := Parse(shipped, data)
	if err != nil {
		t.Fatal(err)
	}
	for n := range data {
		p, _, err := Parse(shipped, data[:n])
		if err != nil {
			continue
		}
		if len(Diff(whole, p)) > 0 || len(data)-n > 1 {
			t.Errorf("the file cut at byte %d of %d is accepted as another policy", n, len(data))
		}
	}
}

// A file that does not announce its last line is accepted only if it is cut between two lines,
// and no remaining section lacks a required key.
func TestTruncatedUnannounced(t *testing.T) {
	data := mustRead(t, "testdata/good/full.toml")
	whole := mustParse(t, string(data))
	for n := range data {
		p, _, err := Parse("full.toml", data[:n])
		if err != nil {
			continue
		}
		if data[n-1] != '\n' {
			t.Errorf("the file cut inside a line, at byte %d, is accepted", n)
		}
		for _, l := range p.Listeners {
			if len(l.Listen) == 0 || len(l.Upstream) == 0 {
				t.Errorf("the file cut at byte %d is accepted, although listener %s lacks a required key", n, l.Name)
			}
		}
		for _, c := range Diff(whole, p) {
			if c.Op == "+" && c.What != "rule" { // a rule that lost keys is told as another rule
				t.Errorf("cut at byte %d: %v", n, c)
			}
		}
	}
}

func TestLoadUnreadable(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Load(filepath.Join(dir, "none.toml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	var es Errors
	if _, _, err := Load(dir); err == nil || errors.As(err, &es) {
		t.Errorf("a directory: %v", err)
	}
	large := filepath.Join(dir, "large.toml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#\n"), int(maxFile)/2+1), 0o666); err != nil {
		t.Fatal(err)
	}
	_, _, err := Load(large)
	if want := large + ":1:1: syntax: the file is larger than 16MiB; a policy is at most that large"; err == nil || err.Error() != want {
		t.Errorf("a large file: %v", err)
	}
}

func TestChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.toml")
	stat := func() fs.FileInfo {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	write := func(s string, at int64) {
		if err := errors.Join(os.WriteFile(path, []byte(s), 0o666), os.Chtimes(path, time.Time{}, time.Unix(at, 0))); err != nil {
			t.Fatal(err)
		}
	}
	write("one", 1)
	first := stat()
	if changed(first, stat()) {
		t.Error("an unchanged file counts as changed")
	}
	if write("two", 2); !changed(first, stat()) {
		t.Error("a file with a later time and the same size counts as unchanged")
	}
	if write("three", 1); !changed(first, stat()) {
		t.Error("a longer file with the same time counts as unchanged")
	}
}

// The example in the manual has a class for a provider's account, in messages, below an uplink
// in bytes. Passcodes go before bulk messages.
func TestWholeFormat(t *testing.T) {
	p, warnings, err := Load("testdata/good/whole.toml")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Classes) != 5 || len(p.Rules) != 2 || p.Listeners[0].Protocol != SMPP {
		t.Errorf("%d classes, %d rules, %v", len(p.Classes), len(p.Rules), p.Listeners)
	}
	if len(warnings) != 2 { // a class is not used, and no listener has the port of a rule
		t.Errorf("warnings are %v", warnings)
	}
}

// TOML has several forms for the same tables. All of them give the same policy.
func TestSpellings(t *testing.T) {
	sections := mustParse(t, `
[class.a]
rate = "1mbit"
[listener.x]
listen = ["127.0.0.1:1"]
upstream = "echo:"
class = "a"
[[rule]]
port = [1, "2-3"]
class = "a"
`)
	for name, text := range map[string]string{
		"dotted keys": `
class.a.rate = "1mbit"
listener.x.listen = "127.0.0.1:1"
listener.x.upstream = ['echo:']
listener.x.class = "a"
[[rule]]
port = [0x1, "2-3"]
class = "a"
`,
		"inline tables": `
class = { a = { rate = "1mbit" } }
listener = { "x" = { listen = "127.0.0.1:1", upstream = "echo:", class = "a" } }
rule = [{ port = [1, "2-3"], class = "a" }]
`,
		"sections": `
[class]
[class.a]
"rate" = """1mbit"""
[listener]
x.upstream = "echo:"
x.listen = "127.0.0.1:1"
x.class = "\u0061"
[[rule]]
port = [
  1, # one
  "2-3",
]
class = "a"
`,
		"Windows": strings.ReplaceAll("[class.a]\nrate = \"1mbit\"\n[listener.x]\nlisten = \"127.0.0.1:1\"\nupstream = \"echo:\"\nclass = \"a\"\n[[rule]]\nport = [\"1\", \"2-3\"]\nclass = \"a\"\n", "\n", "\r\n"),
	} {
		if diff := Diff(sections, mustParse(t, text)); len(diff) > 0 {
			t.Errorf("%s: %v", name, diff)
		}
	}
}

// Keys and headers may add to a table according to the rules of TOML. In each pair the first
// line creates a table, and the second may or may not add to it.
func TestTables(t *testing.T) {
	for _, text := range []string{
		// allowed
		"[a.b]\n[a]\n", "[a]\n[a.b]\n", "[a]\nb.c = 1\nb.d = 2\n", "[a]\nb.c = 1\n[a.b.d]\n", "a.b = 1\n[a.c]\n",
		"[[a]]\n[[a]]\n", "[[a]]\n[a.b]\n[[a]]\n[a.b]\n", "[[a]]\n[[a.b]]\n[[a.b]]\n[a.b.c]\n", "a = {b.c = 1, b.d = 2}\n",
		// not allowed
		"[a]\n[a]\n", "[a]\n[[a]]\n", "[[a]]\n[a]\n", "[a.b]\n[[a]]\n", "a = 1\n[a]\n", "a = 1\n[a.b]\n", "a = 1\n[[a]]\n",
		"a = {}\n[a]\n", "a = {}\n[a.b]\n", "a = {}\n[[a.b]]\n", "a = {}\na.b = 1\n", "a = []\n[[a]]\n", "a = [{}]\n[a.b]\n",
		"a.b = 1\n[a]\n", "a.b = 1\n[[a]]\n", "a.b = 1\na.b.c = 1\n", "a.b = 1\na = 1\n", "a.b.c = 1\n[a.b]\n",
		"[a]\nb.c = 1\n[a.b]\n", "[a.b]\n[a]\nb.c = 1\n", "[[a.b]]\n[a]\nb.c = 1\n", "[a.b.c]\n[a]\nb.d = 1\n",
		"a = {b = 1, b = 2}\n", "a = {b = {}, b.c = 1}\n", "a = {b.c = 1, b = 2}\n", "a = [{b = 1, b = 1}]\n", "[[a]]\nb = 1\nb = 1\n",
	} {
		r := newReport("t.toml", []byte(text))
		parseNodes(r, []byte(text))
		var all map[string]any
		if allowed := toml.Unmarshal([]byte(text), &all) == nil; allowed != (len(r.errs) == 0) {
			t.Errorf("%q is allowed: %v; errors: %v", text, allowed, r.errs)
		}
	}
}

// The time to load grows linearly: twice as many classes take twice as long.
func BenchmarkLoadClasses(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			text := bytes.NewBufferString("[listener.x]\nlisten = \"127.0.0.1:1\"\nupstream = \"echo:\"\nclass = \"c0\"\n")
			for i := range n {
				fmt.Fprintf(text, "[class.c%d]\nrate = \"1mbit\"\n", i)
			}
			for b.Loop() {
				if _, _, err := Parse("b.toml", text.Bytes()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/class")
		})
	}
}

// A byte order mark is not an error, and does not count as a column.
func TestByteOrderMark(t *testing.T) {
	const mark = "\ufeff"
	data := mustRead(t, shipped)
	whole, _, err := Parse(shipped, data)
	if err != nil {
		t.Fatal(err)
	}
	marked, _, err := Parse(shipped, append([]byte(mark), data...))
	if err != nil || len(Diff(whole, marked)) > 0 {
		t.Errorf("with a byte order mark: %v", err)
	}
	if path := ControlPath("p.toml", []byte(mark+"daemon.control = \"c\"\n")); path != "c" {
		t.Errorf("the control socket is at %q", path)
	}
	for text, want := range map[string]string{
		mark + "x = 1\n":        "p.toml:1:1: x: unknown key",
		mark + "# <<END\n":      "p.toml:2:1: end: the file was cut short",
		mark + mark + "x = 1\n": "p.toml:1:1: syntax: ",
	} {
		if _, _, err := Parse("p.toml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// go-toml reads bytes. The error names the character, and UTF-16 is one mistake.
func TestOtherCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"a = “b”\n":                     "p.toml:1:5: syntax: unexpected character U+201C '“' at start of value; " + tomlForm,
		"\xff\xfe[\x00a\x00]\x00\n\x00": "p.toml:1:1: syntax: the file is in UTF-16; save it in UTF-8",
		"\xfe\xff\x00[\x00a\x00]\x00\n": "p.toml:1:1: syntax: the file is in UTF-16; save it in UTF-8",
	} {
		if _, _, err := Parse("p.toml", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestEndAnnounced(t *testing.T) {
	policy := "[class.a]\nrate = \"1mbit\"\n[listener.x]\nlisten = \"127.0.0.1:1\"\nupstream = \"echo:\"\nclass = \"a\"\n"
	for name, text := range map[string]string{
		"with a newline":       "# <<END\n" + policy + "# END\n",
		"without":              "# <<END\n" + policy + "# END",
		"another word":         "# shaper.toml, to be continued <<fin-1\n" + policy + "# fin-1\n\n",
		"Windows":              strings.ReplaceAll("# <<END\n"+policy+"# END\n", "\n", "\r\n"),
		"not on the first":     "\n# <<END\n" + policy,
		"not a word of a here": "# see <<the manual>> first\n" + policy,
	} {
		if _, _, err := Parse(name, []byte(text)); err != nil {
			t.Error(err)
		}
	}
}

func TestWarnings(t *testing.T) {
	const head = `
[class.a]
rate = "1mbit"
[listener.x]
listen = "127.0.0.1:1"
upstream = "echo:"
class = "a"
[listener.u]
listen = "127.0.0.1:2"
protocol = "udp"
upstream = "echo:"
class = "a"
`
	rule := func(keys ...string) string { return "[[rule]]\n" + strings.Join(keys, "\n") + "\nclass = \"a\"\n" }
	// under returns a policy with class c below b, and a rule that leads to c.
	under := func(parent, rate, ceil string) string {
		return fmt.Sprintf("[class.c]\nrate = %q\nceil = %q\nparent = %q\n[class.b]\nrate = \"2mbit\"\n[[rule]]\nclass = \"c\"\n", rate, ceil, parent)
	}
	const covered = "16:3: rule[2]: it can never match: rule 1 (line 13) covers it; move it up or remove it"
	const nowhere = "13:3: rule[1]: it can never match: no listener has this name, protocol and port together; change it or remove it"
	const without = "13:3: rule[1]: it can never match: no listener with this name, protocol and port has what the rule looks at; change it or remove it"
	for name, tt := range map[string]struct{ text, want string }{
		"rate 0":       {strings.Replace(head, "1mbit", "0mbit", 1), `3:8: class.a.rate: "0bit" lets nothing pass; a rate above 0, unless this is to block`},
		"unused class": {head + "[class.b]\nrate = \"1mbit\"\n", "13:2: class.b: it is never used; name it in a listener or a rule"},
		"unused classes": {head + "[class.b]\nrate = \"1mbit\"\n[class.c]\nrate = \"1mbit\"\nparent = \"b\"\n",
			"13:2: class.b: it is never used, like c; name them in a listener or a rule"},
		"a port without brackets": {strings.Replace(head, "upstream = \"echo:\"", "mode = \"socks5\"\nallow = \"2001:db8:1::7:80\"\ndeny = [\"*:25\", \"2001:db8:1::7:22\"]", 1),
			`7:9: listener.x.allow: "2001:db8:1::7:80" is an address, and 80 looks like a port; "[2001:db8:1::7]:80", or "[2001:db8:1::7:80]:1-65535" if it is an address` + "\n" +
				`8:17: listener.x.deny: "2001:db8:1::7:22" is an address, and 22 looks like a port; "[2001:db8:1::7]:22", or "[2001:db8:1::7:22]:1-65535" if it is an address`},
		"sessions of a return class": {head + "return_class = \"b\"\n[class.b]\nrate = \"1mbit\"\nmax_connections = 5\n",
			"16:19: class.b.max_connections: it bounds nothing: sessions are in their class, not in their return_class; put it into a class that a listener or a rule names as class"},
		"connections of one connection": {head + "[class.b]\nrate = \"1 connections/s\"\nper = \"connection\"\n[[rule]]\nlistener = \"x\"\nclass = \"b\"\n",
			`15:7: class.b.per: each connection has a bucket of its own, so there is no limit to them; per = "source", for example`},
		"sessions of one connection": {strings.Replace(head, "1mbit\"", "1mbit\"\nper = \"connection\"\nmax_connections = 1", 1),
			`5:19: class.a.max_connections: each connection has a bucket of its own, so this bounds nothing; per = "source", for example`},
		"sessions of its child": {head + "return_class = \"b\"\n[class.b]\nrate = \"1mbit\"\nmax_connections = 5\n[class.c]\nrate = \"1mbit\"\nparent = \"b\"\n[[rule]]\nclass = \"c\"\n", ""},
		"used by a child":       {head + under("b", "1mbit", "2mbit"), ""},
		"a ceil above 0":        {head + under("b", "0mbit", "1mbit"), ""},
		"less than is assured": {strings.Replace(head, "1mbit\"", "1mbit\"\nparent = \"b\"", 1) + under("b", "1500kbit", "2mbit"),
			`19:8: class.b.rate: "2mbit" is less than what a, c are assured together; lower the rates to "2mbit" in total, and give each a ceil of at most "2mbit"`},
		"less than one is assured": {strings.Replace(head, "1mbit\"", "3mbit\"\nparent = \"b\"", 1) + "[class.b]\nrate = \"2mbit\"\n",
			`15:8: class.b.rate: "2mbit" is less than what a is assured; lower the rates to "2mbit" in total, and give each a ceil of at most "2mbit"`},
		"as much as leaves at once": {strings.Replace(head, "1mbit\"", "3mbit\"\nparent = \"b\"", 1) +
			"[class.b]\nrate = \"24MB/min\"\nalgorithm = \"fixed-window\"\n", ""},
		"more than leaves at once": {strings.Replace(head, "1mbit\"", "3mbit\"\nparent = \"b\"", 1) +
			"[class.b]\nrate = \"2mbit\"\nalgorithm = \"token\"\nburst = \"370KB\"\n",
			`15:8: class.b.rate: "2mbit" is less than what a is assured; lower the rates to "2mbit" in total, and give each a ceil of at most "370KB/s"`},
		"as much as is assured":   {strings.Replace(head, "1mbit\"", "1mbit\"\nparent = \"b\"", 1) + under("b", "1mbit", "2mbit"), ""},
		"used by a rule":          {head + "[class.b]\nrate = \"1mbit\"\n[[rule]]\nclass = \"b\"\n", ""},
		"the same source":         {head + rule(`source = "10.0.0.0/8"`) + rule(`source = "10.0.0.0/8"`), covered},
		"a wider source":          {head + rule(`source = "10.0.0.0/8"`) + rule(`source = "10.1.0.0/16"`), covered},
		"a narrower source":       {head + rule(`source = "10.1.0.0/16"`) + rule(`source = "10.0.0.0/8"`), ""},
		"every source":            {head + rule(`port = 1`) + rule(`port = 1`, `source = "10.0.0.0/8"`), covered},
		"one source of two":       {head + rule(`source = "10.0.0.0/8"`) + rule(`source = ["10.1.0.0/16", "fd00::/8"]`), ""},
		"both sources of two":     {head + rule(`source = ["fd00::/8", "10.0.0.0/8"]`) + rule(`source = ["10.1.0.0/16", "fd00::/16"]`), covered},
		"no source behind one":    {head + rule(`source = "10.0.0.0/8"`) + rule(`port = 1`), ""},
		"ports of one range":      {head + rule(`source_port = "1-100"`) + rule(`source_port = [5, "7-9"]`), covered},
		"ports of two ranges":     {head + rule(`source_port = ["1-50", "51-100"]`) + rule(`source_port = "20-80"`), covered},
		"ports with a gap":        {head + rule(`source_port = ["1-50", "52-100"]`) + rule(`source_port = "20-80"`), ""},
		"all ports":               {head + rule(`source_port = "1-65535"`) + rule(`source_port = 65535`), covered},
		"the protocol's listener": {head + rule(`protocol = "udp"`) + rule(`listener = "u"`), covered},
		"the same listener":       {head + rule(`listener = "x"`) + rule(`listener = "x"`), covered},
		"a port of the same source": {head + rule(`source = "10.0.0.0/8"`, `port = 2`) + rule(`source = "10.0.0.0/8"`, `port = 1`) + rule(`source = "10.0.0.0/9"`, `port = 1`),
			"21:3: rule[3]: it can never match: rule 2 (line 17) covers it; move it up or remove it"},
		"another listener":          {head + rule(`listener = "x"`) + rule(`listener = "u"`), ""},
		"a wider destination":       {head + rule(`destination = "10.0.0.0/8"`) + rule(`destination = "10.0.0.1"`), covered},
		"another destination":       {head + rule(`destination = "10.0.0.0/8"`) + rule(`destination = "11.0.0.1"`), ""},
		"protocol against listener": {head + rule(`listener = "x"`, `protocol = "udp"`), nowhere},
		"a proxy anywhere": {strings.Replace(head, "127.0.0.1:1\"", "192.0.2.1:1\"\naccept_proxy = [\"10.0.0.0/8\", \"::/0\"]", 1),
			`6:31: listener.x.accept_proxy: "::/0" are all addresses, and whoever sends a PROXY header may claim any; the networks of your proxies only`},
		"a proxy on this machine": {strings.Replace(head, "127.0.0.1:1\"", "127.0.0.1:1\"\naccept_proxy = \"0.0.0.0/0\"", 1), ""},
		"what no listener has":    {head + rule(`recipient = "1*"`), without},
		"port of no listener":     {head + rule(`port = 80`), nowhere},
	} {
		t.Run(name, func(t *testing.T) {
			_, warnings, err := Parse("", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(warnings.Error()); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func mustParse(t testing.TB, text string) *Policy {
	t.Helper()
	p, _, err := Parse("test.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

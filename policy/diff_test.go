package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const before = `
[class.acme]
rate = "30 packets/s"
[class.old]
rate = "1mbit"
queue = "64KiB"
[listener.x]
listen = "127.0.0.1:1"
protocol = "udp"
upstream = "echo:"
class = "acme"
[[rule]]
source = "10.0.0.1"
class = "acme"
[[rule]]
source = "10.0.0.2"
class = "old"
[[rule]]
source = "10.0.0.3"
class = "acme"
`

const after = `
[daemon]
drain = "1min"
punctual = false
[class.new]
rate = "2mbit"
algorithm = "token"
[class.acme]
rate = "60 packets/s"
max_wait = "8s"
[listener.y]
listen = ["127.0.0.1:2", "[::1]:2"]
upstream = "discard:"
class = "new"
[listener.x]
listen = "127.0.0.1:1"
protocol = "udp"
upstream = "echo:"
class = "acme"
idle_timeout = "2min"

[[rule]]
source = "10.0.0.3"
protocol = "udp"
class = "acme"
[[rule]]
source = "10.0.0.1"
protocol = "udp"
class = "acme"
`

func TestDiff(t *testing.T) {
	old, new := mustParse(t, before), mustParse(t, after)
	got := diffLines(old, new)
	want := `
~ daemon: drain 30s -> 1min
~ daemon: punctual true -> false
- class old: rate 1mbit, queue 64KiB
+ class new: algorithm token, rate 2mbit
~ class acme: rate 30 packets/s -> 60 packets/s
~ class acme: max_wait none -> 8s
+ listener y: listen 127.0.0.1:2, [::1]:2, upstream discard:, class new
~ listener x: idle_timeout 1min -> 2min
- rule 1: source 10.0.0.1/32, class acme
- rule 2: source 10.0.0.2/32, class old
- rule 3: source 10.0.0.3/32, class acme
+ rule 1: protocol udp, source 10.0.0.3/32, class acme
+ rule 2: protocol udp, source 10.0.0.1/32, class acme
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

func TestDiffOfTrees(t *testing.T) {
	old := mustParse(t, before)
	new := mustParse(t, strings.Replace(before, `rate = "30 packets/s"`, `rate = "30 packets/s"
ceil = "40 packets/s"
parent = "old"
priority = 0
weight = 3`, 1))
	want := `
~ class acme: parent none -> old
~ class acme: ceil the rate -> 40 packets/s
~ class acme: priority 4 -> 0
~ class acme: weight 1 -> 3
`
	if diff := cmp.Diff(want, diffLines(old, new)); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// A class, a fleet and a master may be called "none", which is also printed where there is none.
func TestDiffOfTheNameNone(t *testing.T) {
	const named = `
[fleet.none]
address = "127.0.0.1:6379"
sentinel = "none"
[class.none]
rate = "30 kB/s"
shared = "none"
[class.a]
rate = "1 kB/s"
parent = "none"
[listener.web]
listen = "127.0.0.1:1"
upstream = "echo:"
class = "none"
return_class = "none"
[tc.eth0]
class = "none"
ingress = "none"
`
	without := named
	for _, line := range []string{"sentinel", "shared", "parent", "return_class", "ingress"} {
		without = strings.Replace(without, line+" = \"none\"\n", "", 1)
	}
	want := `
~ fleet none: sentinel "none" -> none
~ class none: shared "none" -> none
~ class a: parent "none" -> none
~ listener web: return_class "none" -> none
~ tc eth0: ingress "none" -> none
`
	old := mustParse(t, named)
	if diff := cmp.Diff(want, diffLines(old, mustParse(t, without))); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	if got, want := diffLines(mustParse(t, before), old), `class a: parent "none", rate 8kbit`; !strings.Contains(got, want) {
		t.Errorf("%q is missing in %s", want, got)
	}
	var b strings.Builder
	if err := old.WriteTree(&b); err != nil || !strings.Contains(b.String(), "parent           \"none\"\n") {
		t.Errorf("%v, and the tree is\n%s", err, &b)
	}
}

// A value that says what is so without it is no change.
func TestDiffOfWhatIsMeantAnyway(t *testing.T) {
	const entry = `
[class.a]
rate = "1mbit"
[listener.x]
listen = "127.0.0.1:1"
mode = "socks5"
allow = "*.example"
class = "a"
`
	if got := diffLines(mustParse(t, entry), mustParse(t, strings.Replace(entry, "mode", "inside = \"tcp\"\nmode", 1))); got != "\n" {
		t.Errorf("there are changes:%s", got)
	}
}

func diffLines(old, new *Policy) string {
	var b strings.Builder
	b.WriteByte('\n')
	for _, c := range Diff(old, new) {
		fmt.Fprintln(&b, c)
	}
	return b.String()
}

func TestDiffOfTheSame(t *testing.T) {
	p := mustParse(t, before)
	moved := mustParse(t, "# a comment\n\n"+strings.ReplaceAll(before, "[[rule]]", "\n[[rule]]"))
	if p.Hash == moved.Hash || p.Rules[0].Line == moved.Rules[0].Line {
		t.Fatal("the files are the same")
	}
	if got := Diff(p, moved); len(got) > 0 {
		t.Errorf("only comments and lines differ: %v", got)
	}
}

// Diff reports only the rules that differ.
func TestDiffRules(t *testing.T) {
	rules := func(classes string) *Policy {
		p := &Policy{}
		for _, c := range strings.Fields(classes) {
			p.Rules = append(p.Rules, Rule{Class: c})
		}
		return p
	}
	for _, tt := range []struct{ old, new, want string }{
		{"a b c", "a b c", ""},
		{"a b c", "a c", "- rule 2: class b"},
		{"a c", "a b c", "+ rule 2: class b"},
		{"a b c", "a x c", "- rule 2: class b\n+ rule 2: class x"},
		{"a b c d", "d a b c", "- rule 4: class d\n+ rule 1: class d"},
		{"a a a", "a a", "- rule 3: class a"},
		{"", "a", "+ rule 1: class a"},
		{"a", "", "- rule 1: class a"},
	} {
		if got := strings.TrimSpace(diffLines(rules(tt.old), rules(tt.new))); got != tt.want {
			t.Errorf("%s -> %s:\n%s\nwant\n%s", tt.old, tt.new, got, tt.want)
		}
	}
}

func TestDiffVeryManyRules(t *testing.T) {
	old, new := manyPrefixes(3000, 3000, 20), manyPrefixes(3000, 3000, 12)
	if got := len(Diff(old, new)); got < 3000 || got > 6000 {
		t.Errorf("%d changes", got)
	}
}

func TestChangeJSON(t *testing.T) {
	old, new := mustParse(t, before), mustParse(t, strings.Replace(before, "30 packets", "60 packets", 1))
	got, err := json.Marshal(Diff(old, new))
	want := `[{"op":"~","what":"class","name":"acme","key":"rate","old":"30 packets/s","new":"60 packets/s"}]`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// A reload prints a quota as the file has it.
func TestDiffOfDays(t *testing.T) {
	daily := strings.Replace(before, "30 packets/s", "5000 packets/day", 1)
	weekly := strings.Replace(before, "30 packets/s", "30000 packets/week", 1)
	changes := Diff(mustParse(t, daily), mustParse(t, weekly))
	if got, want := fmt.Sprint(changes), "[~ class acme: rate 5000 packets/day -> 30000 packets/week]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

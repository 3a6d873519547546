package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const kernelPolicy = `
[class.uplink]
rate = "20mbit"
[class.acme]
parent = "uplink"
rate = "2mbit"
ceil = "8mbit"
[class.otp]
parent = "acme"
rate = "1mbit"
[class.proxied]
rate = "30 packets/s"
max_connections = 7
[listener.x]
listen = "127.0.0.1:1"
protocol = "udp"
upstream = "echo:"
class = "proxied"
[tc.eth0]
class = "uplink"
[tc."eth0.100"]
class = "acme"
ingress = "otp"
apply = true
take_over = true
mark = true
`

func TestTC(t *testing.T) {
	p, warnings, err := Parse("t.toml", []byte(kernelPolicy))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := []TC{{Device: "eth0", Class: "uplink"}, {Device: "eth0.100", Class: "acme", Ingress: "otp", Apply: true, TakeOver: true, Mark: true}}
	if diff := cmp.Diff(want, p.TC); diff != "" {
		t.Error(diff)
	}
	var out strings.Builder
	if err := p.WriteTree(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"tc eth0\n", "take_over  true", "ingress    none   (default)", "mark       false  (default)"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in\n%s", line, out.String())
		}
	}
	var names []string
	for _, c := range p.Tree("uplink") {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"uplink", "acme", "otp"}) || p.Tree("nobody") != nil {
		t.Error(names)
	}
}

// A policy that only shapes devices needs no listener.
func TestTCAlone(t *testing.T) {
	p, warnings, err := Parse("t.toml", []byte("[class.a]\nrate = \"1mbit\"\n[tc.eth0]\nclass = \"a\"\n[[rule]]\nclass = \"a\"\nsource = \"10.0.0.1\"\n"))
	if err != nil || len(warnings) > 0 || len(p.Listeners) > 0 {
		t.Error(err, warnings)
	}
}

func TestTCDiff(t *testing.T) {
	before := mustParse(t, kernelPolicy)
	after := mustParse(t, strings.NewReplacer("ingress = \"otp\"\n", "", "[tc.eth0]\nclass = \"uplink\"\n", "", "apply = true", "apply = false").Replace(kernelPolicy)+"[tc.lo]\nclass = \"otp\"\n")
	var got []string
	for _, c := range Diff(before, after) {
		got = append(got, c.String())
	}
	want := []string{"- tc eth0: class uplink", "~ tc eth0.100: ingress otp -> none", "~ tc eth0.100: apply true -> false", "+ tc lo: class otp"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTCWarnings(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"priority of a class with children", "[class.acme]\n", "[class.acme]\npriority = 1\n",
			"t.toml:4:2: class.acme: the kernel ignores its priority and weight: HTB uses only those of classes without children; give them to the classes below it"},
		{"source behind the proxy", "mark = true\n", "[[rule]]\nclass = \"acme\"\nsource = \"10.0.0.1\"\n",
			`t.toml:26:3: rule[1]: the kernel sees this machine as the source of what listener "x" forwards; add mark = true to the section [tc.DEVICE], so that the kernel knows the class`},
		{"messages", "mark = true\n", "mark = true\n[listener.web]\nlisten = \"127.0.0.1:2\"\nprotocol = \"http\"\nupstream = \"echo:\"\nclass = \"acme\"\n[[rule]]\nclass = \"otp\"\npath = \"/v1/*\"\n",
			`t.toml:32:3: rule[1]: it looks at messages, and the kernel knows none: there they do not belong to class "otp", but to that of their connection; a class that is in no [tc.DEVICE]`},
		{"user whom nobody asks for", "[tc.eth0]\n", "[[rule]]\nclass = \"otp\"\nuser = \"ops\"\n[tc.eth0]\nmark = true\n",
			`t.toml:19:3: rule[1]: it can never match: no listener with this name, protocol and port has what the rule looks at; change it or remove it`},
	} {
		_, warnings, err := Parse("t.toml", []byte(strings.Replace(kernelPolicy, c.from, c.to, 1)))
		if err != nil || len(warnings) != 1 || warnings[0].Error() != c.want {
			t.Errorf("%s: %v %v", c.name, warnings, err)
		}
	}
}

// A class in a tree may have a burst that TBF cannot have, and one alone may have all below.
func TestLargestBursts(t *testing.T) {
	const text = "[class.a]\nrate = \"1gbit\"\nalgorithm = \"token\"\nburst = \"%s\"\n[tc.eth0]\nclass = \"a\"\n"
	mustParse(t, fmt.Sprintf(text, "4194303KiB"))
	mustParse(t, fmt.Sprintf(text, "4GiB")+"[class.b]\nrate = \"1mbit\"\nparent = \"a\"\n")
}

// All that leaves by a device is in a class alone there, so any rule may lead to it.
func TestRulesOfAClassAlone(t *testing.T) {
	const text = `
[class.all]
rate = "20mbit"
[listener.web]
listen = "127.0.0.1:1080"
mode = "connect"
inside = "http"
users = "users"
allow = "any"
class = "all"
[tc.eth0]
class = "all"
[[rule]]
class = "all"
`
	for _, key := range []string{`listener = "web"`, `user = "ops-*"`, `server_name = "*.example"`, `protocol = "http"`, `path = "/v1/*"`, `source = "10.0.0.1"`, manyValues(300)} {
		if _, warnings, err := Parse("t.toml", []byte(text+key+"\n")); err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, warnings %v", key, err, warnings)
		}
	}
}

// manyValues returns keys of a rule with n sources and n ports.
func manyValues(n int) string {
	var sources, ports []string
	for i := range n {
		sources, ports = append(sources, fmt.Sprintf(`"10.0.%d.%d"`, i/250, i%250)), append(ports, fmt.Sprint(2*i+1))
	}
	return "source = [" + strings.Join(sources, ", ") + "]\nport = [" + strings.Join(ports, ", ") + "]"
}

// A rule for a class outside of a tree needs filters there, too, if a rule for the tree comes after it.
func TestFiltersOfRulesForOthers(t *testing.T) {
	const mine = "[[rule]]\nclass = \"otp\"\ndestination = \"10.1.0.0/16\"\n"
	others := "[[rule]]\nclass = \"proxied\"\n" + manyValues(300) + "\n"
	mustParse(t, kernelPolicy+mine+others)
	_, _, err := Parse("t.toml", []byte(kernelPolicy+others+mine))
	if err == nil || !strings.Contains(err.Error(), `tc.eth0: the rules up to the last one for class "uplink" or for a class below it need more than 65536 filters`) {
		t.Error(err)
	}
}

// With also checks that the kernel can do what a class says.
func TestTCWith(t *testing.T) {
	_, _, err := mustParse(t, kernelPolicy).With("otp", map[string]string{"rate": "0bit"})
	if err == nil || !strings.Contains(err.Error(), `class "otp" cannot be put into the kernel by [tc.eth0]`) {
		t.Error(err)
	}
}

// The masks of a range stand for exactly its ports, in ascending order.
func TestMasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint16Range(1, 65535).Draw(t, "first")
		r := PortRange{first, rapid.Uint16Range(first, 65535).Draw(t, "last")}
		next := int(r.First)
		for _, m := range r.Masks() {
			if int(m.Port) != next || m.Port&^m.Mask != 0 {
				t.Fatalf("%v: %v follows %d", r, m, next)
			}
			next += 1 + int(^m.Mask)
		}
		if next != int(r.Last)+1 || len(r.Masks()) > 30 {
			t.Fatalf("%v: %d masks up to %d", r, len(r.Masks()), next)
		}
	})
}

// A class keeps its number if others come and go. A class that moves gets another number.
func TestMinorsStay(t *testing.T) {
	before := mustParse(t, kernelPolicy).Minors()
	added := mustParse(t, "[class.first]\nparent = \"uplink\"\nrate = \"1mbit\"\n"+kernelPolicy).Minors()
	renamed := mustParse(t, strings.ReplaceAll(kernelPolicy, "uplink", "wan")).Minors()
	moved := mustParse(t, strings.Replace(kernelPolicy, "parent = \"acme\"", "parent = \"uplink\"", 1)).Minors()
	for name, minor := range before {
		if added[name] != minor {
			t.Errorf("%s had %x and has %x", name, minor, added[name])
		}
		if now := renamed[strings.Replace(name, "uplink", "wan", 1)]; now != minor {
			t.Errorf("%s had %x, and has %x after the root is renamed", name, minor, now)
		}
	}
	if moved["otp"] == before["otp"] || moved["acme"] != before["acme"] {
		t.Errorf("the numbers are %v, and after a move %v", before, moved)
	}
	if before["proxied"] != 0 {
		t.Error("a class that only the proxy uses has a number")
	}
}

// Each class has a number of its own, which no qdisc has.
func TestMinorsAreApart(t *testing.T) {
	var b strings.Builder
	b.WriteString("[class.root]\nrate = \"1gbit\"\n[tc.eth0]\nclass = \"root\"\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "[class.c%d]\nparent = \"root\"\nrate = \"1mbit\"\n", i)
	}
	minors := mustParse(t, b.String()).Minors()
	seen := map[uint16]bool{}
	for name, minor := range minors {
		if seen[minor] || minor < firstMinor || minor > lastMinor || minor == Major {
			t.Errorf("%s has %x", name, minor)
		}
		seen[minor] = true
	}
	if len(minors) != 2*5001 {
		t.Errorf("%d numbers", len(minors))
	}
}

func TestTooManyClassesForTheKernel(t *testing.T) {
	var b strings.Builder
	b.WriteString("[class.root]\nrate = \"1gbit\"\n[tc.eth0]\nclass = \"root\"\n")
	for i := range maxKernelClasses {
		fmt.Fprintf(&b, "[class.c%d]\nparent = \"root\"\nrate = \"1mbit\"\n", i)
	}
	_, _, err := Parse("t.toml", []byte(b.String()))
	if want := "t.toml:3:2: tc: 16001 classes are for the kernel, which has numbers for 16000; smaller trees"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestMarks(t *testing.T) {
	p := mustParse(t, kernelPolicy)
	minors := p.Minors()
	want := map[string]uint32{"acme": Major<<16 | uint32(minors["acme/"]), "otp": Major<<16 | uint32(minors["otp"])}
	if got := p.Marks(); !maps.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if got := mustParse(t, strings.Replace(kernelPolicy, "mark = true\n", "", 1)).Marks(); len(got) > 0 {
		t.Errorf("got marks %x, although no section has mark", got)
	}
}

// Rules for the proxy need no filters, however many values they have.
func TestProxyRulesNeedNoFilters(t *testing.T) {
	many := "source = [" + strings.Repeat(`"10.0.0.1", `, 300) + "]\nport = [" + strings.Repeat("1, ", 300) + "]\nclass = \"otp\"\n"
	for _, key := range []string{`listener = "x"`, `user = "ops"`, `protocol = ["smpp", "http"]`, `path = "/v1/*"`} {
		if _, _, err := Parse("t.toml", []byte(kernelPolicy+"[[rule]]\n"+key+"\n"+many)); err != nil && strings.Contains(err.Error(), "filters") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Filters returns the number of filters in the kernel. No packet has addresses of both
// families, so there are no filters for that.
func TestFiltersOfRules(t *testing.T) {
	four, six := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")
	for want, rule := range map[int]Rule{
		2:              {Class: "a"},
		1:              {Source: []netip.Prefix{four}},
		0:              {Source: []netip.Prefix{four}, Destination: []netip.Prefix{six}},
		6:              {Source: []netip.Prefix{four, four, six}, Destination: []netip.Prefix{four, four, six, six}},
		2 * 2 * 30:     {Port: []PortRange{{1, 65534}}},
		2 * 16:         {Port: []PortRange{{1, 65535}}, Protocol: []Protocol{HTTP, UDP, SMPP}},
		MaxFilters + 1: {Source: slices.Repeat([]netip.Prefix{four}, 100), Destination: slices.Repeat([]netip.Prefix{four}, 1000)},
	} {
		if got := rule.Filters(); min(got, MaxFilters+1) != want {
			t.Errorf("%v: %d filters, not %d", rule, got, want)
		}
	}
}

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
			t.Errorf("check prints no %q:\n%s", line, out.String())
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

// A policy of devices alone needs no listener.
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
			"t.toml:4:2: class.acme: in the kernel its priority and weight mean nothing: HTB has those of classes without children only; give them to the classes beneath it"},
		{"source behind the proxy", "mark = true\n", "[[rule]]\nclass = \"acme\"\nsource = \"10.0.0.1\"\n",
			`t.toml:26:3: rule[1]: of what comes through listener "x" the kernel sees the source behind the proxy, which is this machine; add mark = true to the section [tc.DEVICE], and the class is known there`},
	} {
		_, warnings, err := Parse("t.toml", []byte(strings.Replace(kernelPolicy, c.from, c.to, 1)))
		if err != nil || len(warnings) != 1 || warnings[0].Error() != c.want {
			t.Errorf("%s: %v %v", c.name, warnings, err)
		}
	}
}

// What is set for a live class is checked for the kernel too.
func TestTCWith(t *testing.T) {
	_, err := mustParse(t, kernelPolicy).With("otp", map[string]string{"rate": "0bit"})
	if err == nil || !strings.Contains(err.Error(), `class "otp" cannot be put into the kernel by [tc.eth0]`) {
		t.Error(err)
	}
}

// The masks of a range hold each of its ports, in ascending order, and no other.
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

// Classes come and go, and the others keep their numbers; one that moves gets another.
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
			t.Errorf("%s had %x, and after a renaming of the root %x", name, minor, now)
		}
	}
	if moved["otp"] == before["otp"] || moved["acme"] != before["acme"] {
		t.Errorf("%v, and after a move %v", before, moved)
	}
	if before["proxied"] != 0 {
		t.Error("a class of the proxy alone has a number")
	}
}

// Each class has a number of its own, that no qdisc has.
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
	if want := "t.toml:3:2: tc: 16001 classes are to be put into the kernel, which has numbers for 16000; smaller trees"; err == nil || err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
}

func TestMarks(t *testing.T) {
	p := mustParse(t, kernelPolicy)
	minors := p.Minors()
	want := map[string]uint32{"acme": Major<<16 | uint32(minors["acme/"]), "otp": Major<<16 | uint32(minors["otp"])}
	if got := p.Marks(); !maps.Equal(got, want) {
		t.Errorf("%x, not %x", got, want)
	}
	if got := mustParse(t, strings.Replace(kernelPolicy, "mark = true\n", "", 1)).Marks(); len(got) > 0 {
		t.Errorf("nobody asked for %x", got)
	}
}

// A rule comes to as many filters as the kernel is given: addresses of two families meet in
// no packet.
func TestFiltersOfRules(t *testing.T) {
	four, six := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")
	for want, rule := range map[int]Rule{
		2:              {Class: "a"},
		1:              {Source: []netip.Prefix{four}},
		0:              {Source: []netip.Prefix{four}, Destination: []netip.Prefix{six}},
		6:              {Source: []netip.Prefix{four, four, six}, Destination: []netip.Prefix{four, four, six, six}},
		2 * 2 * 30:     {Port: []PortRange{{1, 65534}}},
		MaxFilters + 1: {Source: slices.Repeat([]netip.Prefix{four}, 100), Destination: slices.Repeat([]netip.Prefix{four}, 1000)},
	} {
		if got := rule.Filters(); min(got, MaxFilters+1) != want {
			t.Errorf("%v: %d filters, not %d", rule, got, want)
		}
	}
}

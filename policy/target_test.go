package policy

import (
	"net/netip"
	"testing"
)

// A target prints as a file has it, in canonical form.
func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"api.example:443": "api.example:443", "API.Example.": "api.example", "*.acme.example:443": "*.acme.example:443", "*": "*", "*:80-81": "*:80-81",
		"203.0.113.7": "203.0.113.7", "203.0.113.0/24": "203.0.113.0/24", "203.0.113.0/24:443": "203.0.113.0/24:443", "::ffff:203.0.113.7": "203.0.113.7",
		"[2001:db8::1]:443": "[2001:db8::1]:443", "2001:db8::/32": "2001:db8::/32", "[2001:db8::/32]:1-2": "[2001:db8::/32]:1-2", "[2001:db8::1]": "2001:db8::1",
	} {
		got, err := parseTarget(text)
		if err != nil || got.String() != want {
			t.Errorf("%q is %v, %v, want %s", text, got, err, want)
		}
		if again, err := parseTarget(got.String()); err != nil || again != got {
			t.Errorf("%v is read back as %v, %v", got, again, err)
		}
	}
	for _, text := range []string{"", ":", ":443", "[", "[]", "[]:1", "[::1", "[::1]x", "::1]:1", "a b", "*a", "a*", "*.", "**", "10.0.0.1/8", "1.2.3", "fe80::1%eth0", "a:0", "a:1:2", "a/8"} {
		if got, err := parseTarget(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// An address whose last group may be a port is told from those that people give to servers.
func TestTargetsThatMayMeanAPort(t *testing.T) {
	for text, want := range map[string]string{
		"2001:db8:1::7:80": "[2001:db8:1::7]:80", "2001:db8::a:b:8443": "[2001:db8::a:b]:8443", "::1:443": "[::1]:443", "2001:DB8:0::7:22": "[2001:db8::7]:22",
		"2001:db8::53": "", "2001:db8::80": "", "2001:4860:4860::8888": "", "2606:4700::6810:84e5": "", "2001:503:ba3e::2:30": "", "2620:74:1b::1:1": "",
		"2001:db8:1:2:3:4:7:80": "", "2001:db8:1::7:080f": "", "[2001:db8:1::7]:80": "", "[2001:db8:1::7:80]:1-65535": "", "2001:db8:1::7:80/127": "",
		"2001:db8:1::7:80/128": "[2001:db8:1::7]:80", "10.0.0.80": "", "api.example": "",
	} {
		target, err := parseTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		with, ok := target.withPort()
		if ok != (want != "") || ok && with.String() != want {
			t.Errorf("%q may mean %v, %v, want %q", text, with, ok, want)
		}
	}
}

func listenerThatAllows(t *testing.T, allow, deny []string) *Listener {
	t.Helper()
	l := &Listener{}
	for into, texts := range map[*[]Target][]string{&l.Allow: allow, &l.Deny: deny} {
		for _, s := range texts {
			target, err := parseTarget(s)
			if err != nil {
				t.Fatal(err)
			}
			*into = append(*into, target)
		}
	}
	return l
}

// special are addresses that no name and no wide prefix allows.
var special = []string{
	"127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255",
	"169.254.169.254", "169.254.0.1", "168.63.129.16", "100.100.100.200", "192.0.0.8", "192.88.99.1", "198.18.0.1", "198.19.255.255", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
	"::1", "::", "::127.0.0.1", "::203.0.113.7", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b::a01:203",
	"64:ff9b::203.0.113.7", "64:ff9b:1::1", "::ffff:0:127.0.0.1", "::ffff:0:203.0.113.7", "5f00::1", "64:ff9b:1:7f00:0:100::", "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2002:7f00:1::", "2002:a01:203::1",
	"2002:cb00:7107::1", "fc00::1", "fd00:ec2::254", "fdff::1", "fe80::1", "febf::1", "fec0::1", "ff02::1",
}

// Whatever is allowed widely, special addresses are not, however a name leads there.
func TestSpecialAddresses(t *testing.T) {
	l := listenerThatAllows(t, []string{"*", "0.0.0.0/0", "::/0", "rebind.example", "1.0.0.0/8", "64:ff00::/24", "fc00::/6"}, nil)
	for _, text := range special {
		for _, name := range []string{"", "rebind.example"} {
			if l.Allows(name, netip.AddrPortFrom(netip.MustParseAddr(text), 80)) {
				t.Errorf("%q at %s is permitted", name, text)
			}
		}
	}
	for _, text := range []string{"203.0.113.7", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:db8::1", "2606:4700::1"} {
		if !l.Allows("", netip.AddrPortFrom(netip.MustParseAddr(text), 80)) || !l.Allows("any.example", netip.AddrPortFrom(netip.MustParseAddr(text), 80)) {
			t.Errorf("%s is not permitted", text)
		}
	}
	if l.Allows("", netip.AddrPort{}) || l.Allows("", netip.MustParseAddrPort("[fe80::1%eth0]:80")) {
		t.Error("no address, or one with a zone, is permitted")
	}
}

// A name that cannot lead to an allowed address is not looked up.
func TestMayLead(t *testing.T) {
	for _, c := range []struct {
		allow, deny []string
		name        string
		want        bool
	}{
		{nil, nil, "a.example", false},
		{[]string{"a.example:443"}, nil, "a.example", true},
		{[]string{"a.example:80", "203.0.113.0/24:80"}, nil, "a.example", false},
		{[]string{"203.0.113.0/24"}, nil, "a.example", true},
		{[]string{"*.example"}, []string{"a.example"}, "a.example", false},
		{[]string{"*.example"}, []string{"203.0.113.0/24"}, "a.example", true},
		{[]string{"b.example"}, nil, "a.example", false},
	} {
		if got := listenerThatAllows(t, c.allow, c.deny).MayLead(c.name, 443); got != c.want {
			t.Errorf("allow %v, deny %v: %s may lead: %v", c.allow, c.deny, c.name, got)
		}
	}
}

// An address is judged by what names it: literally, by its prefix, by the name that led to it; and
// deny goes first.
func TestAllows(t *testing.T) {
	for _, c := range []struct {
		allow, deny []string
		name, to    string
		want        bool
	}{
		{nil, nil, "", "203.0.113.7:443", false},
		{[]string{"203.0.113.0/24"}, nil, "", "203.0.113.7:443", true},
		{[]string{"203.0.113.0/24"}, nil, "x.example", "203.0.113.7:443", true},
		{[]string{"203.0.113.0/24"}, nil, "", "[::ffff:203.0.113.7]:443", true},
		{[]string{"203.0.113.0/24"}, []string{"203.0.113.7"}, "", "203.0.113.7:443", false},
		{[]string{"203.0.113.0/24"}, []string{"203.0.113.7"}, "x.example", "[::ffff:203.0.113.7]:443", false},
		{[]string{"203.0.113.0/24:443"}, nil, "", "203.0.113.7:80", false},
		{[]string{"*.acme.example:443"}, nil, "api.acme.example", "203.0.113.7:443", true},
		{[]string{"*.acme.example:443"}, nil, "a.b.acme.example", "203.0.113.7:443", true},
		{[]string{"*.acme.example:443"}, nil, "acme.example", "203.0.113.7:443", false},
		{[]string{"*.acme.example:443"}, nil, "evilacme.example", "203.0.113.7:443", false},
		{[]string{"*.acme.example:443"}, nil, "api.acme.example", "203.0.113.7:444", false},
		{[]string{"*.acme.example:443"}, nil, "api.acme.example", "10.0.0.1:443", false},
		{[]string{"*.acme.example:443", "10.0.0.0/8"}, nil, "api.acme.example", "10.0.0.1:443", true},
		{[]string{"*"}, nil, "", "203.0.113.7:443", false},
		{[]string{"*"}, []string{"*.bad.example"}, "x.bad.example", "203.0.113.7:443", false},
		{[]string{"*"}, []string{"*:25"}, "x.example", "203.0.113.7:25", false},
		{[]string{"127.0.0.1:8080"}, nil, "", "127.0.0.1:8080", true},
		{[]string{"127.0.0.1:8080"}, nil, "localhost", "127.0.0.1:8080", true},
		{[]string{"127.0.0.1:8080"}, nil, "", "127.0.0.2:8080", false},
		{[]string{"10.0.0.0/7"}, nil, "", "10.0.0.1:80", false},
		{[]string{"64:ff9b::/96"}, nil, "", "[64:ff9b::cb00:7107]:80", false},
		{[]string{"64:ff9b::/96", "203.0.113.0/24"}, nil, "", "[64:ff9b::cb00:7107]:80", true},
		{[]string{"64:ff9b::/96", "0.0.0.0/0"}, nil, "", "[64:ff9b::7f00:1]:80", false},
		{[]string{"::ffff:0:0:0/96", "203.0.113.0/24"}, nil, "", "[::ffff:0:203.0.113.7]:80", true},
		{[]string{"::ffff:0:0:0/96", "0.0.0.0/0"}, nil, "", "[::ffff:0:127.0.0.1]:80", false},
		{[]string{"64:ff9b::/96", "203.0.113.0/24"}, []string{"203.0.113.7"}, "", "[64:ff9b::cb00:7107]:80", false},
	} {
		if got := listenerThatAllows(t, c.allow, c.deny).Allows(c.name, netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("allow %v, deny %v: %q at %s: %v", c.allow, c.deny, c.name, c.to, got)
		}
	}
}

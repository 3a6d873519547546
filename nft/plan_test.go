package nft

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaper/policy"
)

// load reads a policy of one transparent listener, which has these lines besides.
func load(t *testing.T, lines ...string) *policy.Policy {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shaper.toml")
	text := "[class.a]\nrate = \"20mbit\"\n[listener.x]\nclass = \"a\"\nmode = \"transparent\"\n" + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// takes reports whether the rules of a chain take a packet.
func takes(c chain, to netip.AddrPort) bool {
	for _, r := range c.rules {
		d := r.to
		if d.is6() != to.Addr().Is6() || d.ports != (policy.PortRange{}) && !d.ports.Contains(to.Port()) {
			continue
		}
		in := d.prefix.Contains(to.Addr())
		if d.special {
			in = slices.ContainsFunc(specials(d.is6()).prefixes, func(p netip.Prefix) bool { return p.Contains(to.Addr()) })
		}
		if in {
			return r.does[0].words != returns.words
		}
	}
	return false
}

// The rules take what the listener allows, and nothing else.
func TestRulesTakeWhatIsPermitted(t *testing.T) {
	p := load(t, `listen = ":15001"`, `allow = ["0.0.0.0/0:443", "10.1.0.0/16", "169.254.169.254:80", "203.0.113.0/24", "[::/0]:443", "[fd00:1::/32]:8000-8100", "2001:db8::1", "198.16.0.0/14"]`,
		`deny = ["203.0.113.7", "10.1.2.0/24:22", "2001:db8:9::/48", "1.0.0.0/8:443"]`)
	plan, err := Of(p)
	if err != nil {
		t.Fatal(err)
	}
	l, near := &p.Listeners[0], []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("::1")}
	for _, prefix := range policy.Specials() {
		near = append(near, prefix.Addr(), prefix.Addr().Prev(), lastOf(prefix), lastOf(prefix).Next())
	}
	for _, target := range append(slices.Clone(l.Allow), l.Deny...) {
		near = append(near, target.Prefix.Addr(), target.Prefix.Addr().Prev(), lastOf(target.Prefix), lastOf(target.Prefix).Next())
	}
	taken := 0
	for range 20000 {
		addr := near[rand.IntN(len(near))]
		if !addr.IsValid() || addr.Is6() && embeds(addr) {
			continue
		}
		to := netip.AddrPortFrom(addr, []uint16{22, 80, 443, 8000, 8100, 8101}[rand.IntN(6)])
		got := takes(plan.chains[0], to)
		if got {
			taken++
		}
		if want := l.Allows("", to); got != want {
			t.Fatalf("%v is taken: %v, permitted: %v", to, got, want)
		}
	}
	if taken < 1000 {
		t.Errorf("only %d packets are taken", taken)
	}
}

// embeds reports whether an IPv4 address is embedded in an address. Only the proxy looks at that.
func embeds(addr netip.Addr) bool {
	return slices.ContainsFunc([]string{"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16"}, func(p string) bool { return netip.MustParsePrefix(p).Contains(addr) })
}

// Each kind of traffic has its chain, each family its route, and nothing else is there.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		lines    []string
		has, not []string
	}{
		{[]string{`listen = "127.0.0.1:15001"`, `allow = "203.0.113.0/24:443"`},
			[]string{"ip daddr 203.0.113.0/24 tcp dport 443 tproxy ip to 127.0.0.1:15001 meta mark set 0x5ca30002 accept\n", "socket transparent 1", "ip rule add pref 100 fwmark 0x5ca30002 lookup 23715\n",
				"ip daddr @special4 return"}, []string{"hook output", "ip -6", "special6"}},
		{[]string{`listen = ":15001"`, `allow = ["10.1.0.0/16", "::/0"]`, `intercept = "host"`},
			[]string{"ip daddr 10.1.0.0/16 meta l4proto tcp redirect to :15001\n", "meta nfproto ipv6 meta l4proto tcp redirect to :15001\n", "meta mark & 0xfffc0000 == 0x5ca00000 return\n"},
			[]string{"prerouting", "ip rule", "ip route", "special4"}},
		{[]string{`listen = ["0.0.0.0:15001", "[::1]:15001"]`, `allow = ["10.1.0.0/16", "2001:db8::1:80"]`, `intercept = ["host", "forwarded"]`},
			[]string{"tproxy ip to :15001 ", "tproxy ip6 to [::1]:15001 ", "hook output", "ip -6 rule"}, nil},
		{[]string{`listen = ":15001"`, `allow = ["203.0.113.0/24:53", "2001:db8::/32"]`, `inside = "udp"`},
			[]string{"meta l4proto udp jump forwarded_x\n", "fib daddr type broadcast return\n", "ip daddr 203.0.113.0/24 udp dport 53 tproxy ip to :15001 ", "ip6 daddr 2001:db8::/32 meta l4proto udp tproxy ip6 to :15001 ", "socket transparent 1"},
			[]string{"tcp", "hook output"}},
	} {
		plan, err := Of(load(t, c.lines...))
		if err != nil {
			t.Fatal(err)
		}
		for _, has := range c.has {
			if !strings.Contains(plan.String(), has) {
				t.Errorf("%v: the plan lacks %q:\n%v", c.lines, has, plan)
			}
		}
		for _, not := range c.not {
			if strings.Contains(plan.String(), not) {
				t.Errorf("%v: the plan has %q:\n%v", c.lines, not, plan)
			}
		}
	}
	if _, err := Of(&policy.Policy{Path: "x.toml"}); err == nil || !strings.Contains(err.Error(), "x.toml has no listener with mode") {
		t.Errorf("without transparent listeners: %v", err)
	}
}

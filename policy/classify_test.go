package policy

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// rules is a policy with two listeners and rules. The tests of the classifier use it.
const rules = `
[class.default]
rate = "1mbit"
[class.back]
rate = "1mbit"
[class.dns]
rate = "100 packets/s"
[class.office]
rate = "2mbit"
[class.branch]
rate = "3mbit"
[class.admin]
rate = "4mbit"
[class.acme]
rate = "5mbit"

[listener.web]
listen       = ["127.0.0.1:80", "127.0.0.1:443", "127.0.0.1:8000"]
upstream     = "gw.acme.example:443"
class        = "default"
return_class = "back"

[listener.dns]
listen   = "127.0.0.1:53"
protocol = "udp"
upstream = "echo:"
class    = "default"

[[rule]]                        # 1
source      = "10.1.2.0/24"
source_port = "1-1023"
class       = "admin"

[[rule]]                        # 2
source       = ["10.1.0.0/16", "fd00:1::/64"]
class        = "branch"
return_class = "branch"

[[rule]]                        # 3
protocol = "udp"
class    = "dns"

[[rule]]                        # 4
source = "10.0.0.0/8"
port   = [443, "8000-8100"]
class  = "office"

[[rule]]                        # 5
listener    = "web"
destination = ["192.0.2.0/24", "2001:db8::1"]
class       = "acme"

[[rule]]                        # 6
source = "0.0.0.0/0"
port   = 80
class  = "office"
`

func TestClassify(t *testing.T) {
	c := Compile(mustParse(t, rules))
	for _, tt := range []struct {
		listener, source string
		port             uint16
		destination      string
		want             Decision
	}{
		{"web", "10.1.2.3:1000", 80, "", Decision{"admin", "back", 1}},
		{"web", "10.1.2.3:1024", 80, "", Decision{"branch", "branch", 2}}, // the source port is ANDed
		{"web", "10.1.3.3:1000", 80, "", Decision{"branch", "branch", 2}},
		{"web", "[fd00:1::9]:1000", 80, "", Decision{"branch", "branch", 2}}, // values are ORed
		{"web", "[fd00:2::9]:1000", 443, "", Decision{"default", "back", 0}},
		{"web", "[::ffff:10.1.3.3]:1", 80, "", Decision{"branch", "branch", 2}},
		{"web", "[fd00:1::9%eth0]:1000", 80, "", Decision{"branch", "branch", 2}},
		{"dns", "10.2.0.1:1000", 53, "", Decision{"dns", "", 3}},
		{"dns", "10.1.0.1:1000", 53, "", Decision{"branch", "branch", 2}}, // file order, not precision
		{"web", "10.2.0.1:1000", 443, "", Decision{"office", "back", 4}},
		{"web", "10.2.0.1:1000", 8000, "", Decision{"office", "back", 4}},
		{"web", "10.2.0.1:1000", 8101, "", Decision{"default", "back", 0}},
		{"web", "10.2.0.1:1000", 443, "192.0.2.1:443", Decision{"office", "back", 4}},
		{"web", "11.0.0.1:1000", 443, "192.0.2.1:443", Decision{"acme", "back", 5}},
		{"web", "11.0.0.1:1000", 443, "[::ffff:192.0.2.1]:443", Decision{"acme", "back", 5}},
		{"web", "11.0.0.1:1000", 443, "[2001:db8::1]:443", Decision{"acme", "back", 5}},
		{"web", "11.0.0.1:1000", 443, "[2001:db8::2]:443", Decision{"default", "back", 0}},
		{"web", "11.0.0.1:1000", 443, "", Decision{"default", "back", 0}}, // unknown is no match
		{"web", "11.0.0.1:1000", 80, "", Decision{"office", "back", 6}},
		{"web", "[fd00:2::9]:1000", 80, "", Decision{"default", "back", 0}}, // 0.0.0.0/0 is IPv4
		{"web", "", 80, "", Decision{"default", "back", 0}},                 // no source is in no prefix
		{"none", "10.1.2.3:1000", 80, "", Decision{}},
	} {
		conn := Conn{Listener: tt.listener, Port: tt.port, Source: addrPort(tt.source), Destination: addrPort(tt.destination)}
		if got := c.Classify(conn); got != tt.want {
			t.Errorf("%s from %s to port %d, destination %q: %+v, want %+v", tt.listener, tt.source, tt.port, tt.destination, got, tt.want)
		}
	}
}

func addrPort(s string) netip.AddrPort {
	if s == "" {
		return netip.AddrPort{}
	}
	return netip.MustParseAddrPort(s)
}

func TestNeedsDestination(t *testing.T) {
	c := Compile(mustParse(t, rules))
	for listener, want := range map[string]bool{"web": true, "dns": false, "none": false} {
		if got := c.NeedsDestination(listener); got != want {
			t.Errorf("%s: %v, want %v", listener, got, want)
		}
	}
}

// A listener of another protocol is another one, except that a SOCKS listener also has the datagrams that it relays.
func TestHasListener(t *testing.T) {
	c := Compile(&Policy{Listeners: []Listener{{Name: "web", Protocol: TCP}, {Name: "socks", Protocol: TCP, Mode: SOCKS5}, {Name: "smpp", Protocol: SMPP}}})
	for _, as := range []struct {
		name     string
		protocol Protocol
		want     bool
	}{
		{"web", TCP, true}, {"web", HTTP, false}, {"web", UDP, false}, {"smpp", SMPP, true}, {"none", TCP, false},
		{"socks", TCP, true}, {"socks", UDP, true}, {"socks", SMPP, false},
	} {
		if got := c.HasListener(&Listener{Name: as.name, Protocol: as.protocol}); got != as.want {
			t.Errorf("%s of %s: %v", as.name, as.protocol, got)
		}
	}
}

func TestExplain(t *testing.T) {
	c := Compile(mustParse(t, rules))
	for _, tt := range []struct {
		conn Conn
		want string
	}{
		{Conn{Listener: "web", Source: addrPort("11.0.0.1:99"), Port: 80}, `
class office, back to the client class back: rule 6 (test.toml:53): source 11.0.0.1 is in 0.0.0.0/0, port 80 is in 80
  not rule 1 (test.toml:29): source 11.0.0.1 is not in 10.1.2.0/24
  not rule 2 (test.toml:34): source 11.0.0.1 is not in 10.1.0.0/16, fd00:1::/64
  not rule 3 (test.toml:39): it is not for listener "web"
  not rule 4 (test.toml:43): source 11.0.0.1 is not in 10.0.0.0/8
  not rule 5 (test.toml:48): the destination is not known
`},
		{Conn{Listener: "web", Source: addrPort("[::ffff:10.1.2.3]:5000"), Port: 80}, `
class branch, back to the client class branch: rule 2 (test.toml:34): source 10.1.2.3 is in 10.1.0.0/16
  not rule 1 (test.toml:29): source port 5000 is not in 1-1023
`},
		{Conn{Listener: "web", Source: addrPort("[fe80::1]:1"), Port: 443, Destination: addrPort("192.0.2.9:443")}, `
class acme, back to the client class back: rule 5 (test.toml:48): it is for listener "web", destination 192.0.2.9 is in 192.0.2.0/24
  not rule 1 (test.toml:29): source fe80::1 is not in 10.1.2.0/24
  not rule 2 (test.toml:34): source fe80::1 is not in 10.1.0.0/16, fd00:1::/64
  not rule 3 (test.toml:39): it is not for listener "web"
  not rule 4 (test.toml:43): source fe80::1 is not in 10.0.0.0/8
`},
		{Conn{Listener: "dns", Source: addrPort("[fe80::1]:1"), Port: 53}, `
class dns: rule 3 (test.toml:39): it is for listener "dns"
  not rule 1 (test.toml:29): source fe80::1 is not in 10.1.2.0/24
  not rule 2 (test.toml:34): source fe80::1 is not in 10.1.0.0/16, fd00:1::/64
`},
		{Conn{Listener: "mail"}, `
class -: there is no listener "mail"
`},
	} {
		if got := "\n" + c.Explain(tt.conn, Fields{}).String(); got != tt.want {
			t.Errorf("%+v:\n%s\nwant %s", tt.conn, got, tt.want)
		}
	}
}

func TestExplainWithoutRules(t *testing.T) {
	p := mustParse(t, rules)
	p.Rules = nil
	got := Compile(p).Explain(Conn{Listener: "web"}, Fields{}).String()
	want := "class default, back to the client class back: no rule matches, so it is the class of listener \"web\"\n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	p.Rules = []Rule{{Class: "admin", File: "test.toml"}}
	got = Compile(p).Explain(Conn{Listener: "web"}, Fields{}).String()
	if want := "class admin, back to the client class back: rule 1 (test.toml:0): it matches everything\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// Classify and Explain decide like a loop over the rules from the first to the last.
func TestClassifyLikeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &Policy{
			Listeners: []Listener{
				{Name: "a", Protocol: TCP, Listen: []string{"127.0.0.1:1"}, Class: "da", ReturnClass: "ra"},
				{Name: "b", Protocol: UDP, Listen: []string{"127.0.0.1:2"}, Class: "db"},
			},
			Rules: rapid.SliceOfN(drawRule(), 0, 12).Draw(t, "rules"),
		}
		c := Compile(p)
		for range 20 {
			conn := Conn{
				Listener:    rapid.SampledFrom([]string{"a", "b"}).Draw(t, "listener"),
				Source:      netip.AddrPortFrom(drawAddr().Draw(t, "source"), drawPort().Draw(t, "source port")),
				Destination: netip.AddrPortFrom(drawAddr().Draw(t, "destination"), 1),
				Port:        drawPort().Draw(t, "port"),
			}
			want := model(p, conn)
			if got := c.Classify(conn); got != want {
				t.Fatalf("%+v: %+v, want %+v", conn, got, want)
			}
			e := c.Explain(conn, Fields{})
			if got := (Decision{e.Class, e.ReturnClass, e.Rule}); got != want {
				t.Fatalf("%+v: Explain returns %+v, want %+v", conn, got, want)
			}
		}
	})
}

// model is Classify as the manual describes it.
func model(p *Policy, conn Conn) Decision {
	l, _ := p.Listener(conn.Listener)
	in := func(prefixes []netip.Prefix, addr netip.Addr) bool {
		return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })
	}
	among := func(ranges []PortRange, port uint16) bool {
		return len(ranges) == 0 || slices.ContainsFunc(ranges, func(r PortRange) bool { return r.First <= port && port <= r.Last })
	}
	for i, r := range p.Rules {
		if (len(r.Listener) == 0 || slices.Contains(r.Listener, l.Name)) &&
			(len(r.Protocol) == 0 || slices.Contains(r.Protocol, l.Protocol)) &&
			in(r.Source, conn.Source.Addr()) && among(r.SourcePort, conn.Source.Port()) &&
			in(r.Destination, conn.Destination.Addr()) && among(r.Port, conn.Port) {
			back := r.ReturnClass
			if back == "" {
				back = l.ReturnClass
			}
			return Decision{r.Class, back, i + 1}
		}
	}
	return Decision{l.Class, l.ReturnClass, 0}
}

func drawPort() *rapid.Generator[uint16] {
	return rapid.OneOf(rapid.Uint16Range(1, 6), rapid.SampledFrom([]uint16{64, 65, math.MaxUint16 - 10, math.MaxUint16}))
}

// drawAddr draws one of few addresses, so that many are in a prefix.
func drawAddr() *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		low := rapid.SampledFrom([]byte{0, 1, 2, 128, 255})
		v4 := [4]byte{10, low.Draw(t, "2"), low.Draw(t, "3"), low.Draw(t, "4")}
		switch rapid.IntRange(0, 2).Draw(t, "family") {
		case 0:
			return netip.AddrFrom4(v4)
		case 1:
			return netip.AddrFrom16(netip.AddrFrom4(v4).As16()) // mapped
		}
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: v4[1], 7: v4[2], 15: v4[3]})
	})
}

func drawRule() *rapid.Generator[Rule] {
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		addr := drawAddr().Draw(t, "addr").Unmap()
		return netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")).Masked()
	})
	ports := rapid.Custom(func(t *rapid.T) PortRange {
		a, b := drawPort().Draw(t, "port"), drawPort().Draw(t, "port")
		return PortRange{min(a, b), max(a, b)} // some are too many to be found by port
	})
	return rapid.Custom(func(t *rapid.T) Rule {
		return Rule{
			Listener:    rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "none"}), 0, 3).Draw(t, "listener"),
			Protocol:    rapid.SliceOfN(rapid.SampledFrom([]Protocol{TCP, UDP}), 0, 1).Draw(t, "protocol"),
			Source:      rapid.SliceOfN(prefix, 0, 3).Draw(t, "source"),
			SourcePort:  rapid.SliceOfN(ports, 0, 2).Draw(t, "source_port"),
			Destination: rapid.SliceOfN(prefix, 0, 2).Draw(t, "destination"),
			Port:        rapid.SliceOfN(ports, 0, 2).Draw(t, "port"),
			Class:       rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "class"),
			ReturnClass: rapid.SampledFrom([]string{"", "c3"}).Draw(t, "return_class"),
		}
	})
}

// A rule with the warning that another rule covers it never decides.
func TestCoveredNeverDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &Policy{
			Listeners: []Listener{
				{Name: "a", Protocol: TCP, Listen: []string{"systemd:a"}, Class: "d"},
				{Name: "b", Protocol: UDP, Listen: []string{"systemd:b"}, Class: "d"},
			},
			Rules: rapid.SliceOfN(drawRule(), 2, 6).Draw(t, "rules"),
		}
		c := coverage{Classifier: Compile(p), listeners: p.Listeners, budget: coverBudget}
		for range 30 {
			got := c.Classify(Conn{
				Listener:    rapid.SampledFrom([]string{"a", "b"}).Draw(t, "listener"),
				Source:      netip.AddrPortFrom(drawAddr().Draw(t, "source"), drawPort().Draw(t, "source port")),
				Destination: netip.AddrPortFrom(drawAddr().Draw(t, "destination"), 1),
				Port:        drawPort().Draw(t, "port"),
			})
			if got.Rule == 0 {
				continue
			}
			if by, covered := c.coveredBy(got.Rule - 1); covered {
				t.Fatalf("rule %d decides, although a warning says that rule %d covers it", got.Rule, by+1)
			}
		}
	})
}

func TestClassifyDoesNotAllocate(t *testing.T) {
	c := Compile(mustParse(t, rules))
	conn := Conn{Listener: "web", Source: addrPort("[::ffff:11.0.0.1]:99"), Port: 443, Destination: addrPort("192.0.2.9:443")}
	if n := testing.AllocsPerRun(100, func() { c.Classify(conn) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// manyPrefixes returns a policy with n source prefixes, spread over a number of rules. Their
// lengths are from widest to 32. If widest is 20, few prefixes overlap, as in lists of
// addresses. If it is 12, most addresses are in several prefixes.
func manyPrefixes(n, rules, widest int) *Policy {
	return manySources(n, rules, func(random *rand.Rand) netip.Prefix {
		v := random.Uint32()
		addr := netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
		return netip.PrefixFrom(addr, widest+int(v)%(33-widest)).Masked()
	})
}

// manyPrefixes6 is manyPrefixes for IPv6: networks in 2000::/3, with lengths from widest to 64.
func manyPrefixes6(n, rules, widest int) *Policy {
	return manySources(n, rules, func(random *rand.Rand) netip.Prefix {
		var a [16]byte
		binary.BigEndian.PutUint64(a[:], random.Uint64())
		a[0] = 0x20 | a[0]&0x1f
		return netip.PrefixFrom(netip.AddrFrom16(a), widest+random.IntN(65-widest)).Masked()
	})
}

func manySources(n, rules int, draw func(*rand.Rand) netip.Prefix) *Policy {
	random := rand.New(rand.NewPCG(1, 2))
	p := oneListener(rules)
	for i := range n {
		r := &p.Rules[i%rules]
		r.Source = append(r.Source, draw(random))
	}
	return p
}

// oneListener returns a policy with one listener, and rules for everything.
func oneListener(rules int) *Policy {
	p := &Policy{Listeners: []Listener{{Name: "x", Protocol: TCP, Listen: []string{"127.0.0.1:1"}, Class: "d"}}}
	for i := range rules {
		p.Rules = append(p.Rules, Rule{Class: fmt.Sprintf("c%d", i%7)})
	}
	return p
}

func BenchmarkClassify(b *testing.B) {
	for _, bb := range []struct{ prefixes, rules, widest, ports int }{
		{10, 10, 20, 0}, {1000, 10, 20, 0}, {100_000, 10, 20, 0}, {100_000, 10, 20, 1000}, {100_000, 10, 12, 0},
		{100_000, 100_000, 20, 0}, {100_000, 100_000, 20, 1000}, {100_000, 100_000, 12, 0},
	} {
		for _, family := range []string{"4", "6"} {
			many := map[string]func(n, rules, widest int) *Policy{"4": manyPrefixes, "6": manyPrefixes6}[family]
			if family == "6" {
				bb.widest += 24
			}
			p := many(bb.prefixes, bb.rules, bb.widest)
			withPorts(p, bb.ports)
			c := Compile(p)
			for _, outcome := range []string{"hit", "miss"} {
				name := fmt.Sprintf("ipv%s/prefixes=%d/rules=%d/from=%d/ports=%d/%s", family, bb.prefixes, bb.rules, bb.widest, bb.ports, outcome)
				conns := manyConns(p, outcome == "hit")
				b.Run(name, func(b *testing.B) { benchmarkClassify(b, c, conns) })
			}
		}
	}
}

// withPorts gives each rule a port, and puts many rules before them that have only another
// port.
func withPorts(p *Policy, n int) {
	if n == 0 {
		return
	}
	for i := range p.Rules {
		p.Rules[i].Port = []PortRange{{80, 80}, {443, 443}}
	}
	var others []Rule
	for i := range n {
		port := uint16(1000 + i)
		others = append(others, Rule{Port: []PortRange{{port, port}}, Class: "c"})
	}
	p.Rules = append(others, p.Rules...)
}

// manyConns returns connections from addresses in the policy, or from others.
func manyConns(p *Policy, hit bool) []Conn {
	random := rand.New(rand.NewPCG(3, 4))
	conns := make([]Conn, 1024)
	for i := range conns {
		var sources []netip.Prefix
		for len(sources) == 0 {
			sources = p.Rules[random.IntN(len(p.Rules))].Source
		}
		addr := sources[random.IntN(len(sources))].Addr()
		if !hit && addr.Is4() { // of 240.0.0.0/4, where some are
			addr = netip.AddrFrom4([4]byte{240 | byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())})
		} else if !hit {
			a := addr.As16()
			a[3] ^= byte(1 + random.IntN(255))
			addr = netip.AddrFrom16(a)
		}
		conns[i] = Conn{Listener: "x", Source: netip.AddrPortFrom(addr, 99), Port: 443}
	}
	return conns
}

func benchmarkClassify(b *testing.B, c *Classifier, conns []Conn) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c.Classify(conns[i%len(conns)])
		i++
	}
}

// Rules without a source, or with the same source, are found by port and by listener.
func BenchmarkClassifyByPort(b *testing.B) {
	for _, source := range [][]netip.Prefix{nil, {netip.MustParsePrefix("0.0.0.0/0")}} {
		for _, n := range []int{10, 1000, 10_000} {
			p := oneListener(n)
			conns := make([]Conn, 1024)
			for i := range p.Rules {
				p.Rules[i].Source, p.Rules[i].Port = source, []PortRange{{uint16(1 + i), uint16(1 + i)}}
			}
			for i := range conns {
				conns[i] = Conn{Listener: "x", Source: addrPort("10.0.0.1:99"), Port: uint16(1 + i*n/len(conns))}
			}
			c := Compile(p)
			b.Run(fmt.Sprintf("rules=%d/source=%v", n, source), func(b *testing.B) { benchmarkClassify(b, c, conns) })
		}
	}
}

func BenchmarkClassifyByListener(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		p := &Policy{}
		for i := range n {
			name := fmt.Sprintf("listener%d", i)
			p.Listeners = append(p.Listeners, Listener{Name: name, Protocol: TCP, Listen: []string{"systemd:x"}, Class: "d"})
			p.Rules = append(p.Rules, Rule{Listener: []string{name}, Class: "c"})
		}
		conns := make([]Conn, 1024)
		for i := range conns {
			conns[i] = Conn{Listener: p.Listeners[i*n/len(conns)].Name, Port: 1}
		}
		c := Compile(p)
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) { benchmarkClassify(b, c, conns) })
	}
}

func BenchmarkCompile(b *testing.B) {
	p := manyPrefixes(100_000, 1000, 20)
	for b.Loop() {
		Compile(p)
	}
}

func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	text.WriteString("[class.a]\nrate = \"1mbit\"\n[listener.x]\nlisten = \"127.0.0.1:1\"\nupstream = \"echo:\"\nclass = \"a\"\n")
	for _, rule := range manyPrefixes(100_000, 1000, 20).Rules {
		fmt.Fprintf(&text, "[[rule]]\nclass = \"a\"\nsource = [\"%s\"]\n", strings.ReplaceAll(list(rule.Source), ", ", "\", \""))
	}
	data := []byte(text.String())
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, _, err := Parse("", data); err != nil {
			b.Fatal(err)
		}
	}
}

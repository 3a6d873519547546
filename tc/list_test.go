package tc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink/nl"

	"shaper/policy"
)

// packet has the properties of a packet that rules can test.
type packet struct {
	source, destination netip.Addr
	protocol            policy.Protocol
	from, to            uint16
}

// bytes returns the packet on the wire, from its network header on.
func (p packet) bytes() []byte {
	number := byte(6)
	if p.protocol == policy.UDP {
		number = 17
	}
	if p.source.Is4() {
		b := append(make([]byte, 12), p.source.AsSlice()...)
		b = append(b, p.destination.AsSlice()...)
		b[0], b[9] = 0x45, number
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, p.from), p.to)
	}
	b := append(make([]byte, 8), p.source.AsSlice()...)
	b = append(b, p.destination.AsSlice()...)
	b[0], b[6] = 0x60, number
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, p.from), p.to)
}

// buckets holds the filters of a list by table and bucket, in their order.
type buckets map[Handle][]Object

func bucketsOf(list []Object) buckets {
	b := buckets{}
	for _, o := range list {
		if _, ok := o.Params.(u32Key); ok {
			b[o.Handle&^u32Places] = append(b[o.Handle&^u32Places], o)
		}
	}
	return b
}

// classify finds the class of a packet in a list as the kernel does (u32_classify in
// net/sched/cls_u32.c), and counts the filters that it tries.
func (b buckets) classify(packet []byte, looked *int) Handle {
	var walk func(Handle) Handle
	walk = func(bucket Handle) Handle {
		for _, o := range b[bucket] {
			*looked++
			key := o.Params.(u32Key)
			matched := true
			for _, m := range key.Selector.all() {
				matched = matched && binary.BigEndian.Uint32(packet[m.Offset:])&m.Mask == m.Value
			}
			if !matched {
				continue
			}
			if key.Link == 0 {
				return key.Class
			}
			into := uint32(0)
			if key.HashMask != 0 {
				into = binary.BigEndian.Uint32(packet[key.HashOffset:]) & key.HashMask
				for shift := key.HashMask; shift&1 == 0; shift >>= 1 {
					into >>= 1
				}
			}
			if class := walk(u32Node(key.Link, into, 0)); class != 0 {
				return class
			}
		}
		return 0
	}
	return walk(0)
}

// expected returns the class of the first rule that matches.
func expected(rules []policy.Rule, p packet) Handle {
	inPrefix := func(all []netip.Prefix, a netip.Addr) bool {
		for _, one := range all {
			if one.Contains(a) {
				return true
			}
		}
		return len(all) == 0
	}
	inPorts := func(all []policy.PortRange, port uint16) bool {
		for _, one := range all {
			if one.Contains(port) {
				return true
			}
		}
		return len(all) == 0
	}
	for i, r := range rules {
		protocol := len(r.Protocol) == 0
		for _, one := range r.Protocol {
			protocol = protocol || one == p.protocol
		}
		if protocol && inPrefix(r.Source, p.source) && inPrefix(r.Destination, p.destination) && inPorts(r.SourcePort, p.from) && inPorts(r.Port, p.to) {
			return classOfRule(i)
		}
	}
	return 0
}

func classOfRule(i int) Handle { return htbHandle + Handle(i) + 1 }

// randomRules returns rules of all kinds, with runs of similar ones.
func randomRules(r *rand.Rand, n int) (rules []policy.Rule) {
	prefix := func(kind int) netip.Prefix {
		if kind%2 == 0 {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(4)), byte(r.IntN(64))}), 16+r.IntN(17)).Masked()
		}
		b := netip.MustParseAddr("fd00::").As16()
		b[3], b[15] = byte(r.IntN(4)), byte(r.IntN(64))
		return netip.PrefixFrom(netip.AddrFrom16(b), 24+r.IntN(105)).Masked()
	}
	ports := func() policy.PortRange {
		first := 1 + r.IntN(300)
		return policy.PortRange{First: uint16(first), Last: uint16(first + r.IntN(40))}
	}
	for len(rules) < n {
		kind := r.IntN(6)
		for range 1 + r.IntN(150) {
			var rule policy.Rule
			switch kind {
			case 0, 1:
				rule.Source = []netip.Prefix{prefix(kind)}
			case 2:
				rule.Destination, rule.Port = []netip.Prefix{prefix(r.IntN(2)), prefix(r.IntN(2))}, []policy.PortRange{ports()}
			case 3:
				rule.Port, rule.Protocol = []policy.PortRange{{First: uint16(1 + r.IntN(340))}}, []policy.Protocol{policy.TCP}
				rule.Port[0].Last = rule.Port[0].First
			case 4:
				rule.Source, rule.SourcePort = []netip.Prefix{prefix(r.IntN(2))}, []policy.PortRange{ports(), ports()}
			case 5:
				rule.Source, rule.Destination, rule.Protocol = []netip.Prefix{prefix(0), prefix(1)}, []netip.Prefix{prefix(0), prefix(1)}, []policy.Protocol{policy.UDP}
			}
			rules = append(rules, rule)
		}
	}
	return rules
}

func randomPacket(r *rand.Rand) packet {
	p := packet{protocol: policy.TCP, from: uint16(1 + r.IntN(340)), to: uint16(1 + r.IntN(340))}
	if r.IntN(2) == 0 {
		p.protocol = policy.UDP
	}
	if r.IntN(2) == 0 {
		address := func() netip.Addr {
			return netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(4)), byte(r.IntN(64))})
		}
		p.source, p.destination = address(), address()
		return p
	}
	address := func() netip.Addr {
		b := netip.MustParseAddr("fd00::").As16()
		b[3], b[15] = byte(r.IntN(4)), byte(r.IntN(64))
		return netip.AddrFrom16(b)
	}
	p.source, p.destination = address(), address()
	return p
}

// A packet gets the class of the first rule that matches, however the rules are put into
// tables.
func TestListsKeepTheOrderOfRules(t *testing.T) {
	for _, n := range []int{1, 10, 200, 1000, 3000} {
		for seed := range uint64(6) {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			rules := randomRules(r, n)
			var lists [2]buckets
			for _, f := range []family{ipv4, ipv6} {
				var all []entry
				for i := range rules {
					all = append(all, entries(&rules[i], f, classOfRule(i))...)
				}
				l := u32List("eth0", htbHandle, slot{f, 1}, all)
				holdsPlaces(t, l, slot{f, 1})
				lists[f] = bucketsOf(l)
			}
			matched := 0
			for range 400 {
				p := randomPacket(r)
				f := ipv4
				if p.source.Is6() {
					f = ipv6
				}
				want, looked := expected(rules, p), 0
				if got := lists[f].classify(p.bytes(), &looked); got != want {
					t.Fatalf("%d rules, seed %d: %+v gets class %v, want %v", n, seed, p, got, want)
				}
				if want != 0 {
					matched++
				}
			}
			if n >= 200 && matched < 40 {
				t.Errorf("%d rules, seed %d: only %d packets match", n, seed, matched)
			}
		}
	}
}

// holdsPlaces fails the test unless each filter has a valid place of its own, and each table
// comes before its filters and before the filter that leads to it.
func holdsPlaces(t *testing.T, list []Object, s slot) {
	t.Helper()
	seen, tables := map[Handle]bool{}, map[uint32]bool{0: true}
	for _, o := range list {
		if seen[o.Handle] {
			t.Fatalf("two filters have the handle %v", u32Handle(o.Handle))
		}
		seen[o.Handle] = true
		if _, ok := o.Params.(u32Table); ok {
			tables[o.Handle.table()] = true
		}
		key, _ := o.Params.(u32Key)
		if !tables[o.Handle.table()] || !tables[key.Link] {
			t.Fatalf("%v comes before its table", u32Handle(o.Handle))
		}
		if first := firstTable(s); o.Handle.table() != 0 && (o.Handle.table() < first || o.Handle.table() >= first+tablesOfList) {
			t.Fatalf("table %x is outside the numbers of this list", o.Handle.table())
		}
	}
}

// The tables of all lists have numbers of their own, below those that the kernel gives.
func TestTablesOfLists(t *testing.T) {
	last := uint32(0)
	for _, s := range slots {
		if first := firstTable(s); first <= last || first+tablesOfList > 0x800 {
			t.Errorf("the tables of %v begin at %x, after %x", s, first, last)
		}
		last = firstTable(s) + tablesOfList - 1
	}
}

// Of 10,000 addresses, the kernel tries few for a packet.
func TestLongListsAreShortToSearch(t *testing.T) {
	var all []entry
	for i := range 10000 {
		r := policy.Rule{Source: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i % 3), byte(i >> 8), byte(i)}), 32)}}
		all = append(all, entries(&r, ipv4, htbHandle+1)...)
	}
	l, most := bucketsOf(u32List("eth0", htbHandle, slot{ipv4, 0}, all)), 0
	for i := range 1000 {
		looked := 0
		p := packet{source: netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), destination: netip.AddrFrom4([4]byte{192, 0, 2, 1}), protocol: policy.TCP}
		l.classify(p.bytes(), &looked)
		most = max(most, looked)
	}
	if most > 60 {
		t.Errorf("the kernel tries %d filters", most)
	}
}

// Parameters are read back as they were sent.
func TestParamsAreReadBack(t *testing.T) {
	key := u32Key{Class: htbHandle + 7, HashMask: 0xff00, HashOffset: 12}
	key.Selector.add(12, 0x0a000000, 0xff000000)
	key.Selector.add(20, 53, 0xffff)
	link := key
	link.Class, link.Link = 0, 0x1ff
	redirect := u32Key{Redirect: "shaper2", redirect: 9}
	redirect.Selector.add(0, 0, 0)
	read := redirect
	read.redirect = 0
	flower := flowerKey{Class: 5, EtherType: 0x800, Protocol: 6, Source: netip.MustParsePrefix("10.0.0.0/9"), From: policy.PortRange{First: 7, Last: 7}, To: policy.PortRange{First: 1, Last: 65535}}
	flower6 := flowerKey{Class: 5, EtherType: 0x86dd, Protocol: 17, Destination: netip.MustParsePrefix("fd00:8::/29"), To: policy.PortRange{First: 53, Last: 53}}
	slow := tbf{Rate: 1 << 20, Ticks: 9, Limit: 99, sizing: sizing{0, 7, 8}, Peak: peak{1 << 33, 10, sizing{2, 11, 12}}}
	class := htbClass{1 << 33, 1 << 35, 4, 5, 6, 7, sizing{2, 9, 64}, sizing{0, 10, 65}}
	for _, c := range []struct {
		kind string
		in   Params
		out  Params
	}{
		{"htb", ourRoot, ourRoot},
		{"tbf", tbf{Rate: 1 << 34, Ticks: tbfDepth(1<<34, 1<<20), Limit: 99}, tbf{Rate: 1 << 34, Ticks: tbfDepth(1<<34, 1<<20), Limit: 99}},
		{"pfifo", fifo{1000}, fifo{1000}}, {"bfifo", fifo{1 << 30}, fifo{1 << 30}},
		{"fq_codel", fqCodel{77}, fqCodel{77}}, {"sfq", sfq{127}, sfq{127}}, {"ingress", noParams{}, noParams{}},
		{"tbf", slow, slow},
		{"class", class, class},
		{"u32", key, key}, {"u32", link, link}, {"u32", redirect, read}, {"u32", u32Table{256}, u32Table{256}},
		{"bpf", markFilter{}, markFilter{}},
		{"flower", flower, flower}, {"flower", flower6, flower6}, {"flower", flowerKey{Class: 7}, flowerKey{Class: 7}},
	} {
		var got Params
		switch c.kind {
		case "class":
			got = parseClass("htb", c.in.options())
		case "u32":
			got = parseU32(c.in.options(), func(i uint32) string { return fmt.Sprint("shaper", i-7) })
		case "flower":
			got = parseFlower(c.in.options())
		case "bpf":
			got = parseBPF(c.in.options())
		default:
			got = parseQdisc(c.kind, c.in.options())
		}
		if got != c.out {
			t.Errorf("%s: %+v is read as %+v", c.kind, c.in, got)
		}
	}
	police, drop, offset := attr(key.options(), nl.TCA_U32_POLICE, nil), attr(key.options(), nl.TCA_U32_ACT, attr(nil, 1, attr(nil, actKind, []byte("gact\x00")))), key.options()
	offset[4+1] = 1 // offshift, after the header of the attribute
	twice := redirect.options()
	actions := bytes.Clone(parseAttrs(twice)[nl.TCA_U32_ACT])
	twice = attr(attr(nil, nl.TCA_U32_SEL, redirect.sel()), nl.TCA_U32_ACT, attr(actions, 2, parseAttrs(actions)[1]))
	u32 := func(options []byte) Params { return parseU32(options, func(uint32) string { return "shaper2" }) }
	for _, strange := range []Params{parseQdisc("cake", []byte{1}), u32([]byte{1}), u32(police), u32(drop), u32(offset), u32(twice), parseBPF(nil), parseFlower(attr32(nil, 78, 1))} {
		if _, ok := strange.(opaque); !ok {
			t.Errorf("%v is read as ours", strange)
		}
	}
}

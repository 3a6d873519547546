package tests

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/tc"
	"shaper/tests/trial"
)

// sample is a packet to classify.
type sample struct {
	source, destination netip.Addr
	protocol            policy.Protocol
	from, to            uint16 // ports
	form                string // one of forms
}

// forms lists what may stand between addresses and ports, for IPv4 (true) and IPv6 (false). u32
// does not look behind options and extension headers. A fragment after the first has no ports.
var forms = map[bool][]string{
	true:  {"plain", "first fragment", "options", "fragment"},
	false: {"plain", "extension", "fragment"},
}

// frame returns the packet as an Ethernet frame.
func (s sample) frame() []byte {
	number := byte(unix.IPPROTO_TCP)
	if s.protocol == policy.UDP {
		number = unix.IPPROTO_UDP
	}
	segment := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.from), s.to)
	segment = append(segment, make([]byte, 60)...)
	b := make([]byte, 14, 200)
	b[0] = 2 // a MAC address that nobody has
	if s.source.Is4() {
		binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IP)
		words := 5
		if s.form == "options" {
			words = 6
		}
		ip := make([]byte, 4*words)
		ip[0], ip[8], ip[9] = 0x40+byte(words), 64, number
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(segment)))
		switch s.form {
		case "options":
			ip[20], ip[21], ip[22], ip[23] = 1, 1, 1, 0
		case "first fragment":
			ip[6] = 0x20
		case "fragment":
			ip[7] = 9
		}
		copy(ip[12:], s.source.AsSlice())
		copy(ip[16:], s.destination.AsSlice())
		return append(append(b, ip...), segment...)
	}
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IPV6)
	ip := make([]byte, 40)
	ip[0], ip[6], ip[7] = 0x60, number, 64
	switch s.form {
	case "extension":
		ip[6] = unix.IPPROTO_DSTOPTS
		segment = append([]byte{number, 0, 1, 4, 0, 0, 0, 0}, segment...)
	case "fragment":
		ip[6] = unix.IPPROTO_FRAGMENT
		segment = append([]byte{number, 0, 0, 9 << 3, 0, 0, 0, 1}, segment...)
	}
	binary.BigEndian.PutUint16(ip[4:], uint16(len(segment)))
	copy(ip[8:], s.source.AsSlice())
	copy(ip[24:], s.destination.AsSlice())
	return append(append(b, ip...), segment...)
}

// u32CanTell reports whether u32 can see all fields of the packet that a rule tests.
func (s sample) u32CanTell(r *policy.Rule) bool {
	plain := s.form == "plain" || s.form == "first fragment"
	return plain || len(r.Port)+len(r.SourcePort) == 0 && (s.source.Is4() || len(r.Protocol) == 0)
}

// overlapping returns a policy with n rules, each with its own class. Many of them match the same
// packets.
func overlapping(r *rand.Rand, n int) string {
	var b strings.Builder
	b.WriteString("[class.root]\nrate = \"10gbit\"\n[class.none]\nrate = \"1mbit\"\n[tc.wire]\nclass = \"root\"\n")
	for _, protocol := range []string{"tcp", "udp"} {
		fmt.Fprintf(&b, "[listener.%s]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = \"echo:\"\nclass = \"none\"\n", protocol, protocol)
	}
	for i := range n {
		fmt.Fprintf(&b, "[class.c%d]\nparent = \"root\"\nrate = \"1mbit\"\nceil = \"10gbit\"\n[[rule]]\nclass = \"c%d\"\n", i, i)
		prefix := func() string {
			four := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(r.IntN(8))}), []int{0, 8, 24, 30, 32}[r.IntN(5)])
			six := netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("fd00::%x", r.IntN(8))), []int{0, 33, 125, 128}[r.IntN(4)])
			return fmt.Sprintf("[\"%v\", \"%v\"]", four.Masked(), six.Masked())
		}
		ports := func() string {
			first := 1 + r.IntN(40)
			return fmt.Sprintf("\"%d-%d\"", first, first+r.IntN(30))
		}
		some := 0
		for key, value := range map[string]string{"source": prefix(), "destination": prefix(), "source_port": ports(), "port": ports(), "protocol": `"` + []string{"tcp", "udp"}[r.IntN(2)] + `"`} {
			if r.IntN(3) == 0 {
				fmt.Fprintf(&b, "%s = %s\n", key, value)
				some++
			}
		}
		if some == 0 {
			b.WriteString("port = 7\n")
		}
	}
	return b.String()
}

func randomSample(r *rand.Rand) sample {
	s := sample{protocol: []policy.Protocol{policy.TCP, policy.UDP}[r.IntN(2)], from: uint16(1 + r.IntN(70)), to: uint16(1 + r.IntN(70))}
	four := r.IntN(2) == 0
	address := func() netip.Addr {
		if four {
			return netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(r.IntN(8))})
		}
		return netip.MustParseAddr(fmt.Sprintf("fd00::%x", r.IntN(8)))
	}
	s.source, s.destination = address(), address()
	s.form = forms[four][r.IntN(len(forms[four]))]
	return s
}

// The kernel gives a packet the class that the proxy's classifier gives its connection, considering
// only the rules that u32 can test on the packet.
func TestKernelClassifiesAsTheProxy(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	near.output("echo 1 > /proc/sys/net/ipv6/conf/wire/disable_ipv6") // IPv6 sends packets of its own
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	hits := map[string]int{}
	for range trial.Size(4, 40) {
		config := policyFile(t, overlapping(r, 16))
		near.mustTC(config, "apply")
		p, _, err := policy.Load(config)
		if err != nil {
			t.Fatal(err)
		}
		near.do(func() error { return checkClasses(t, r, p, hits) })
		if t.Failed() {
			break
		}
	}
	t.Log(hits)
	if hits["plain"] == 0 || hits["fragment"] == 0 {
		t.Error("the samples contain no plain packet, or no fragment")
	}
}

// checkClasses sends random samples, and compares their classes by the kernel's counters. It counts
// the samples of each form in hits. It runs in the namespace.
func checkClasses(t *testing.T, r *rand.Rand, p *policy.Policy, hits map[string]int) error {
	k, err := tc.Open()
	if err != nil {
		return err
	}
	defer k.Close()
	d, err := k.Device("wire")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	before, _, err := k.Count(d, p, p.TC[0])
	if err != nil {
		return err
	}
	for range 150 {
		s := randomSample(r)
		if d.Kinds.Flower && s.form != "plain" {
			continue // flower sees more than u32; TestUserModeLinux tests it
		}
		b := s.frame()
		to := unix.SockaddrLinklayer{Ifindex: d.Index, Protocol: binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, binary.BigEndian.Uint16(b[12:])))}
		if err := unix.Sendto(fd, b, 0, &to); err != nil {
			return err
		}
		now, _, err := k.Count(d, p, p.TC[0])
		if err != nil {
			return err
		}
		got := "unmatched"
		for name, n := range now {
			if name != "root" && n.Packets > before[name].Packets {
				got = name
			}
		}
		before = now
		if want := s.proxied(p); got != want {
			t.Errorf("%+v: the kernel says class %s, the proxy %s, with the rules %+v", s, got, want, p.Rules)
			return nil
		}
		hits[s.form]++
	}
	return nil
}

// proxied returns the class that the proxy's classifier gives, considering only the rules that u32
// can test on the packet; "unmatched" if none matches.
func (s sample) proxied(p *policy.Policy) string {
	visible := *p
	visible.Rules = slices.DeleteFunc(slices.Clone(p.Rules), func(r policy.Rule) bool { return !s.u32CanTell(&r) })
	listener := "tcp"
	if s.protocol == policy.UDP {
		listener = "udp"
	}
	class := policy.Compile(&visible).Classify(policy.Conn{
		Listener: listener, Source: netip.AddrPortFrom(s.source, s.from), Port: s.to, Destination: netip.AddrPortFrom(s.destination, s.to),
	}).Class
	if class == "none" {
		return "unmatched"
	}
	return class
}

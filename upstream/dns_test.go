package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"shaper/tests/trial"
)

// A zone is what a name server of a test knows: the records of each full name, with a TTL in
// seconds.
type zone map[string][]record

type record struct {
	ttl  uint32
	body dnsmessage.ResourceBody
}

func a(ttl uint32, addr string) record {
	return record{ttl, &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()}}
}

func aaaa(ttl uint32, addr string) record {
	return record{ttl, &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(addr).As16()}}
}

func cname(ttl uint32, name string) record {
	return record{ttl, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(name)}}
}

func srv(ttl uint32, priority, weight, port uint16, target string) record {
	return record{ttl, &dnsmessage.SRVResource{Priority: priority, Weight: weight, Port: port, Target: dnsmessage.MustNewName(target)}}
}

// nameServer is a name server on loopback, for UDP and TCP.
type nameServer struct {
	addr netip.AddrPort
	udp  *net.UDPConn
	tcp  *net.TCPListener

	mu    sync.Mutex // guards the fields below
	zone  zone
	rcode dnsmessage.RCode // instead of an answer, if it is not 0

	hangs  atomic.Bool
	drops  atomic.Uint32 // the type of questions that it never answers
	loses  atomic.Uint32 // the type of the next question that it does not answer
	mute   atomic.Value  // the name about which it never answers
	asked  atomic.Int64  // questions, over UDP and TCP
	byTCP  atomic.Int64
	forged atomic.Bool // sends wrong answers before each right one
}

// serveNames starts a name server, which ends with the test.
func serveNames(t testing.TB, host string, z zone) *nameServer {
	t.Helper()
	for range 100 { // until both ports are free
		if s := serveAt(t, netip.MustParseAddrPort(host+":0"), z); s != nil {
			return s
		}
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil
}

// serveTwo starts name servers on 127.0.0.1 and 127.0.0.2, at the same port.
func serveTwo(t testing.TB, z zone) (one, two *nameServer) {
	t.Helper()
	for range 100 { // until the port is free on both
		one = serveNames(t, "127.0.0.1", z)
		if two = serveAt(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), one.addr.Port()), z); two != nil {
			return one, two
		}
	}
	t.Fatal("no port is free on both addresses")
	return nil, nil
}

// serveAt starts a name server at an address; nil if the address is taken. It ends with the test.
func serveAt(t testing.TB, at netip.AddrPort, z zone) *nameServer {
	t.Helper()
	s := &nameServer{zone: z}
	var err error
	if s.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
		return nil
	}
	s.addr = s.udp.LocalAddr().(*net.UDPAddr).AddrPort()
	if s.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(s.addr)); err != nil {
		s.udp.Close()
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(s.serveUDP)
	wg.Go(s.serveTCP)
	t.Cleanup(func() {
		s.udp.Close()
		s.tcp.Close()
		wg.Wait()
	})
	return s
}

func (s *nameServer) serveUDP() {
	buffer := make([]byte, 4096)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		answer := s.answer(buffer[:n], maxDatagram)
		if answer == nil {
			continue
		}
		if s.forged.Load() {
			other := slices.Clone(answer)
			other[0] ^= 1 // another ID
			s.udp.WriteToUDPAddrPort(other, from)
			s.udp.WriteToUDPAddrPort([]byte("no message"), from)
		}
		s.udp.WriteToUDPAddrPort(answer, from)
	}
}

func (s *nameServer) serveTCP() {
	for {
		c, err := s.tcp.AcceptTCP()
		if err != nil {
			return
		}
		s.byTCP.Add(1)
		var length [2]byte
		io.ReadFull(c, length[:])
		text := make([]byte, binary.BigEndian.Uint16(length[:]))
		io.ReadFull(c, text)
		if answer := s.answer(text, 65535); answer != nil {
			c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
		}
		c.Close()
	}
}

// refuse makes the server answer with an error.
func (s *nameServer) refuse(rcode dnsmessage.RCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcode = rcode
}

// answer returns the answer to a question; nil if the server is silent.
func (s *nameServer) answer(text []byte, most int) []byte {
	s.asked.Add(1)
	if s.hangs.Load() {
		return nil
	}
	var m dnsmessage.Message
	if m.Unpack(text) != nil || len(m.Questions) != 1 || len(m.Additionals) != 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := m.Questions[0]
	if s.loses.CompareAndSwap(uint32(q.Type), 0) || uint32(q.Type) == s.drops.Load() || q.Name.String() == s.mute.Load() {
		return nil
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RCode: s.rcode}, Questions: m.Questions}
	name := strings.ToLower(q.Name.String())
	if _, known := s.zone[name]; !known && s.rcode == 0 {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for s.rcode == 0 {
		next := ""
		for _, r := range s.zone[name] {
			alias, isAlias := r.body.(*dnsmessage.CNAMEResource)
			if !isAlias && typeOf(r.body) != q.Type {
				continue
			}
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: r.ttl}, Body: r.body})
			if isAlias {
				next = alias.CNAME.String()
			}
		}
		if name = next; next == "" {
			break
		}
	}
	packed, _ := reply.Pack()
	if len(packed) > most {
		reply.Answers, reply.Truncated = nil, true
		packed, _ = reply.Pack()
	}
	return packed
}

func typeOf(body dnsmessage.ResourceBody) dnsmessage.Type {
	switch body.(type) {
	case *dnsmessage.AResource:
		return dnsmessage.TypeA
	case *dnsmessage.AAAAResource:
		return dnsmessage.TypeAAAA
	}
	return dnsmessage.TypeSRV
}

// resolver returns a resolver that asks the servers, with more lines in resolv.conf.
func resolver(t testing.TB, hosts string, more string, servers ...*nameServer) *Resolver {
	t.Helper()
	dir := t.TempDir()
	conf := more + "\n"
	r := &Resolver{Hosts: filepath.Join(dir, "hosts"), Conf: filepath.Join(dir, "resolv.conf")}
	for _, s := range servers {
		conf += fmt.Sprintf("nameserver %v\n", s.addr.Addr())
		r.Port = s.addr.Port()
	}
	for path, text := range map[string]string{r.Hosts: hosts, r.Conf: conf} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// expectLookup looks an upstream up, and checks what comes out: "address address ttl".
func expectLookup(t *testing.T, r *Resolver, upstream, want string) {
	t.Helper()
	answer, err := r.Lookup(context.Background(), upstream, nil)
	got := ""
	for _, one := range answer.Addresses {
		got += one.AddrPort.String() + " "
	}
	if err != nil {
		got = err.Error()
	} else {
		got += answer.TTL.String()
	}
	if got != want {
		t.Errorf("%s: %s, want %s", upstream, got, want)
	}
}

func TestLookup(t *testing.T) {
	s := serveNames(t, "127.0.0.1", zone{
		"one.example.":        {a(7, "127.0.0.9")},
		"two.example.":        {a(9, "127.0.0.2"), a(8, "127.0.0.1")},
		"alias.example.":      {cname(3, "one.example.")},
		"six.example.":        {aaaa(60, "::1"), a(30, "127.0.0.1")},
		"long.corp.example.":  {a(5, "127.0.0.3")},
		"a.b.example.":        {a(5, "127.0.0.4")},
		"a.b.corp.example.":   {a(5, "127.0.0.5")},
		"dotless.":            {a(5, "127.0.0.6")},
		"dotless.corp.local.": {a(5, "127.0.0.7")},
		"empty.example.":      {},
		"_smpp._tcp.example.": {srv(40, 2, 0, 2777, "one.example."), srv(50, 1, 5, 2776, "two.example."), srv(50, 1, 60, 2775, "one.example."), srv(50, 1, 60, 1, "none.example.")},
		"_none._tcp.example.": {srv(40, 0, 0, 0, ".")},
	})
	r := resolver(t, "127.0.0.8 Hosted other # one\n# 127.0.0.7 not\n::1 localhost\n127.0.0.1 localhost\n", "search corp.local corp.example", s)
	for upstream, want := range map[string]string{
		"one.example:1":             "127.0.0.9:1 7s",
		"ONE.example.:1":            "127.0.0.9:1 7s",
		"two.example:1":             "127.0.0.2:1 127.0.0.1:1 8s",
		"alias.example:1":           "127.0.0.9:1 3s",
		"long:1":                    "127.0.0.3:1 5s",
		"a.b.example:1":             "127.0.0.4:1 5s", // as it is first, since it has a dot
		"a.b:1":                     "127.0.0.5:1 5s",
		"dotless:1":                 "127.0.0.7:1 5s", // the search list first, since it has none
		"dotless.:1":                "127.0.0.6:1 5s",
		"hosted:1":                  "127.0.0.8:1 5s",
		"other.:1":                  "127.0.0.8:1 5s",
		"none.example:1":            "lookup none.example: no such host",
		"empty.example:1":           "lookup empty.example: no such host",
		"srv:_smpp._tcp.example":    "127.0.0.9:2775 127.0.0.2:2776 127.0.0.1:2776 127.0.0.9:2777 7s",
		"srv:_none._tcp.example":    "lookup _none._tcp.example: the service is not available here",
		"srv:_unknown._tcp.example": "lookup _unknown._tcp.example: no such host",
	} {
		expectLookup(t, r, upstream, want)
	}
}

// IPv6 comes first if there is a route to it, and the families take turns.
func TestFamiliesTakeTurns(t *testing.T) {
	for _, c := range []struct{ in, without, want string }{
		{"1.1.1.1 2.2.2.2 2600::1 2600::2 2600::3", "", "2600::1 1.1.1.1 2600::2 2.2.2.2 2600::3"},
		{"1.1.1.1 2.2.2.2 2600::1", "2600::1", "1.1.1.1 2.2.2.2 2600::1"},
		{"fd00::1 1.1.1.1 fd00::2", "", "1.1.1.1 fd00::1 fd00::2"},
		{"1.1.1.1 1.1.1.1 3.3.3.3", "1.1.1.1", "3.3.3.3 1.1.1.1"},
		{"2600::1", "2600::1", "2600::1"},
		{"", "", ""},
	} {
		var in, out []string
		var addrs []netip.Addr
		for _, s := range strings.Fields(c.in) {
			in, addrs = append(in, s), append(addrs, netip.MustParseAddr(s))
		}
		for _, one := range inTurn(addrs, func(a netip.Addr) bool { return a.String() != c.without }) {
			out = append(out, one.String())
		}
		if got := strings.Join(out, " "); got != c.want {
			t.Errorf("%v: %s, want %s", in, got, c.want)
		}
	}
}

// An answer that does not fit into a datagram comes over TCP.
func TestTruncatedAnswerComesOverTCP(t *testing.T) {
	z := zone{"many.example.": nil}
	for i := range 200 {
		z["many.example."] = append(z["many.example."], a(5, fmt.Sprintf("127.0.1.%d", i)))
	}
	s := serveNames(t, "127.0.0.1", z)
	answer, err := resolver(t, "", "", s).Lookup(context.Background(), "many.example:1", nil)
	if err != nil || len(answer.Addresses) != maxAddresses/2 || s.byTCP.Load() != 1 {
		t.Errorf("%d addresses, %v, %d questions over TCP", len(answer.Addresses), err, s.byTCP.Load())
	}
	before := s.byTCP.Load()
	if _, err := resolver(t, "", "options use-vc", s).Lookup(context.Background(), "many.example:1", nil); err != nil || s.byTCP.Load() != before+2 {
		t.Errorf("%v; %d questions over TCP, want one for each family", err, s.byTCP.Load()-before)
	}
}

// A server that never answers for one family holds up nobody who can use the other. It is soon
// asked again.
func TestOneFamilyIsNotAnswered(t *testing.T) {
	for dropped, want := range map[dnsmessage.Type]string{dnsmessage.TypeAAAA: "127.0.0.1:80", dnsmessage.TypeA: "[::1]:80"} {
		s := serveNames(t, "127.0.0.1", zone{"both.test.": {a(300, "127.0.0.1"), aaaa(300, "::1")}})
		s.drops.Store(uint32(dropped))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		got, err := resolver(t, "", "options timeout:30", s).Lookup(ctx, "both.test:80", nil)
		if err != nil || len(got.Addresses) != 1 || got.Addresses[0].String() != want || got.TTL != partialTTL || ctx.Err() != nil {
			t.Errorf("without an answer to %v: %v, %v, %v", dropped, got, err, ctx.Err())
		}
	}
}

// A host of a service whose name is never answered holds up nobody who can use another.
func TestOneHostIsNotAnswered(t *testing.T) {
	s := serveNames(t, "127.0.0.1", zone{"_s._tcp.test.": {srv(300, 1, 1, 80, "one.test."), srv(300, 1, 1, 80, "two.test.")}, "one.test.": {a(300, "127.0.0.1")}, "two.test.": {}})
	s.mute.Store("two.test.")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := resolver(t, "", "options timeout:30", s).Lookup(ctx, "srv:_s._tcp.test", nil)
	if err != nil || len(got.Addresses) != 1 || got.Addresses[0].Host != "one.test." || got.TTL != partialTTL || ctx.Err() != nil {
		t.Errorf("%v, %v, %v", got, err, ctx.Err())
	}
}

// answerOf looks an upstream up until ctx ends, after a lookup that has found known.
func answerOf(t *testing.T, r *Resolver, patience time.Duration, upstream string, known []Address) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := r.Lookup(ctx, upstream, known)
	return fmt.Sprint(answer.Addresses, answer.TTL, err)
}

// at returns an address, which is that of a host of a service unless host is "".
func at(addr, host string) Address {
	like := Address{AddrPort: netip.MustParseAddrPort(addr), Host: host}
	if host != "" {
		like.Priority, like.Weight = 1, 1
	}
	return like
}

// Nobody waits for the lookup of a known name, so a lost datagram costs it no address: it is sent again.
// The same holds for a first lookup as long as what it has found cannot be reached.
func TestLateAnswersAreAwaited(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		six   string
		known []Address
		want  string
	}{
		{"::1", []Address{at("[::1]:80", ""), at("127.0.0.1:80", "")}, "[[::1]:80 127.0.0.2:80] 5m0s <nil>"},
		{"fe80::1", nil, "[127.0.0.2:80 [fe80::1]:80] 5m0s <nil>"},
	} {
		s := serveNames(t, "127.0.0.1", zone{"both.test.": {a(300, "127.0.0.2"), aaaa(300, c.six)}})
		s.loses.Store(uint32(dnsmessage.TypeA))
		if got := answerOf(t, resolver(t, "", "options timeout:2", s), time.Minute, "both.test:80", c.known); got != c.want {
			t.Errorf("with %s: %s, want %s", c.six, got, c.want)
		}
	}
}

// What the servers do not answer about keeps its known addresses, and is soon asked for again. What is
// answered with "none" does not.
func TestKnownAddressesAreKept(t *testing.T) {
	t.Parallel()
	one, two, three := srv(300, 1, 1, 80, "one.test."), srv(300, 1, 1, 80, "two.test."), srv(300, 1, 1, 80, "three.test.")
	port81 := srv(300, 1, 1, 81, "two.test.")
	s := serveNames(t, "127.0.0.1", zone{
		"both.test.": {a(300, "127.0.0.9"), aaaa(300, "::1")}, "one.test.": {a(300, "127.0.0.9")},
		"_s._tcp.test.": {one, two, three}, "_mute._tcp.test.": {two, three}, "_ports._tcp.test.": {one, two, port81},
	})
	s.mute.Store("two.test.")
	r := resolver(t, "", "options timeout:30", s)
	for _, c := range []struct {
		upstream string
		silent   dnsmessage.Type
		known    []Address
		want     string
	}{
		{"both.test:80", dnsmessage.TypeAAAA, []Address{at("[::1]:80", ""), at("127.0.0.1:80", "")}, "[[::1]:80 127.0.0.9:80] 5s <nil>"},
		{"srv:_s._tcp.test", 0, []Address{at("127.0.0.1:80", "one.test."), at("127.0.0.2:80", "two.test."), at("127.0.0.3:80", "three.test.")}, "[127.0.0.9:80 127.0.0.2:80] 5s <nil>"},
		{"srv:_ports._tcp.test", 0, []Address{at("127.0.0.2:80", "two.test."), at("127.0.0.2:81", "two.test.")}, "[127.0.0.9:80 127.0.0.2:80 127.0.0.2:81] 5s <nil>"},
		{"srv:_mute._tcp.test", 0, []Address{at("127.0.0.2:80", "two.test.")}, "lookup two.test."}, // Names keeps all
	} {
		s.drops.Store(uint32(c.silent))
		if got := answerOf(t, r, 2*time.Second, c.upstream, c.known); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.upstream, got, c.want)
		}
	}
}

// A panic of a lookup is an error, also if it asks several questions at once.
func TestPanicOfAQuestion(t *testing.T) {
	s := serveNames(t, "127.0.0.1", zone{"_s._tcp.test.": {srv(300, 1, 1, 80, "one.test.")}})
	r := resolver(t, "", "", s)
	r.Other = func(context.Context, string) ([]netip.Addr, error) { panic("no resolver") }
	log := &trial.Log{}
	n := NewNames(r.Lookup, slog.New(slog.NewTextHandler(log, nil)))
	defer n.Close()
	if _, err := n.Find(t.Context(), "srv:_s._tcp.test"); err != errPanicked || !strings.Contains(log.String(), "no resolver") {
		t.Errorf("%v\n%s", err, log)
	}
}

// The next server answers if one is silent, or says that it cannot.
func TestNextServerAnswers(t *testing.T) {
	z := zone{"one.example.": {a(7, "127.0.0.9")}}
	good, bad := serveTwo(t, z)
	r := resolver(t, "", "options timeout:1 attempts:1", bad, good)
	bad.refuse(dnsmessage.RCodeServerFailure)
	expectLookup(t, r, "one.example:1", "127.0.0.9:1 7s")
	bad.hangs.Store(true)
	began := time.Now()
	expectLookup(t, r, "one.example:1", "127.0.0.9:1 7s")
	if took := time.Since(began); took < time.Second {
		t.Errorf("the silent one was given up after %v, before its timeout", took)
	}
}

// What is no answer to the question does not count.
func TestForgedAnswersAreIgnored(t *testing.T) {
	s := serveNames(t, "127.0.0.1", zone{"one.example.": {a(7, "127.0.0.9")}})
	s.forged.Store(true)
	expectLookup(t, resolver(t, "", "", s), "one.example:1", "127.0.0.9:1 7s")
}

// The system's own resolver knows names that the DNS does not. It is not asked if the DNS is
// away.
func TestOtherResolver(t *testing.T) {
	s := serveNames(t, "127.0.0.1", zone{})
	r := resolver(t, "", "options timeout:1 attempts:1", s)
	r.Other = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host != "printer.local" {
			return nil, errors.New("nor here")
		}
		return []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.5")}, nil
	}
	expectLookup(t, r, "printer.local:1", "127.0.0.5:1 30s")
	expectLookup(t, r, "none.local:1", "nor here")
	s.refuse(dnsmessage.RCodeRefused)
	expectLookup(t, r, "printer.local:1", fmt.Sprintf("lookup printer.local: server %v: it answers Refused", s.addr))
}

func TestReadResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	text := "; one\ndomain first.example\nsearch a.example. b.example # two\nnameserver 192.0.2.1\nnameserver bad\nnameserver fe80::1%lo\n" +
		"nameserver 192.0.2.2\nnameserver 192.0.2.3\noptions ndots:99 timeout:0 attempts:9 rotate use-vc edns0 trust-ad\noptions ndots:x\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		path:       "[192.0.2.1:53 [fe80::1%lo]:53 192.0.2.2:53] [a.example. b.example.] 15 1s 5 true true",
		path + "x": "[127.0.0.1:53 [::1]:53] [] 1 5s 2 false false",
	} {
		c := readResolvConf(path, 53, new(silences))
		if got := fmt.Sprint(c.servers, c.search, c.dots, c.timeout, c.attempts, c.rotate, c.overTCP); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// Whatever a server sends does no harm.
func FuzzAnswer(f *testing.F) {
	s := &nameServer{zone: zone{"x.": {a(1, "127.0.0.1"), aaaa(1, "::1"), srv(1, 1, 1, 1, "x.")}}}
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV} {
		text, err := questionText(1, dnsmessage.Question{Name: dnsmessage.MustNewName("x."), Type: kind, Class: dnsmessage.ClassINET})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.answer(text, 65535))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m := parseAnswer(text)
		if m == nil {
			return
		}
		records, err := recordsOf(m)
		if err == nil && len(records) == 0 && !m.Truncated {
			t.Error("no record is no error")
		}
		servers(records)
	})
}

// An answer with thousands of addresses costs each session and each check no more than a bound.
func TestAddressesAreBounded(t *testing.T) {
	z := zone{}
	for host := range 40 {
		name := fmt.Sprintf("h%d.example.", host)
		for i := range 1500 {
			z[name] = append(z[name], a(60, fmt.Sprintf("127.1.%d.%d", i/250, i%250)))
		}
		z["_s._tcp.example."] = append(z["_s._tcp.example."], srv(60, 1, 1, uint16(host+1), name))
	}
	r := resolver(t, "", "", serveNames(t, "127.0.0.1", z))
	for _, upstream := range []string{"h1.example:1", "srv:_s._tcp.example"} {
		answer, err := r.Lookup(context.Background(), upstream, nil)
		if n := len(answer.Addresses); n == 0 || n > maxAddresses {
			t.Errorf("%s: %d addresses, %v, want at most %d", upstream, n, err, maxAddresses)
		}
	}
}

// If the first server is silent, and whoever asks has less patience than it has time, the next question begins with the
// second one, until that is silent, too.
func TestSilentServerIsNotAskedFirst(t *testing.T) {
	good, bad := serveTwo(t, zone{"one.example.": {a(7, "127.0.0.9")}})
	r := resolver(t, "", "options timeout:30", bad, good)
	ask := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := r.Lookup(ctx, "one.example:1", nil)
		return err
	}
	mute := func(first, second *nameServer) {
		first.hangs.Store(true)
		second.hangs.Store(false)
		if ask(silentAfter+50*time.Millisecond) == nil {
			t.Fatal("a server that hangs has answered")
		}
		asked := first.asked.Load()
		for range 3 {
			if err := ask(10 * time.Second); err != nil || first.asked.Load() != asked {
				t.Fatalf("%v, and the silent server was asked %d times more", err, first.asked.Load()-asked)
			}
		}
	}
	mute(bad, good)
	mute(good, bad)
}

// A server that is silent is the first to be asked again when it answers, after a while, or when resolv.conf has other
// servers. One that answers with an error is not silent, nor one that answers other questions, or has had no time.
func TestSilences(t *testing.T) {
	servers := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53")}
	others := []netip.AddrPort{servers[0], netip.MustParseAddrPort("192.0.2.3:53")}
	began := time.Now()
	late := began.Add(time.Second)
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		what string
		do   func(s *silences)
		want int
	}{
		{"a time-out", func(s *silences) { s.note(late, servers, 0, began, timeout) }, 1},
		{"a question is given up", func(s *silences) { s.note(late, servers, 0, began, context.Canceled) }, 1},
		{"it is given up at once", func(s *silences) { s.note(began.Add(silentAfter-1), servers, 0, began, timeout) }, 0},
		{"an error of the network", func(s *silences) { s.note(late, servers, 0, began, &net.OpError{Op: "read", Err: unix.ECONNREFUSED}) }, 0},
		{"SERVFAIL", func(s *silences) { s.note(late, servers, 0, began, errors.New("it answers ServerFailure")) }, 0},
		{"it answers another question", func(s *silences) {
			s.note(began.Add(1), servers, 0, began, nil)
			s.note(late, servers, 0, began, timeout)
		}, 0},
		{"it answers again", func(s *silences) {
			s.note(late, servers, 0, began, timeout)
			s.note(late, servers, 0, late, errNoSuchHost)
		}, 0},
		{"all are silent", func(s *silences) {
			s.note(late, servers, 0, began, timeout)
			s.note(late, servers, 1, began, timeout)
		}, 0},
		{"a while has passed", func(s *silences) { s.note(late.Add(-silentFor), servers, 0, began.Add(-silentFor), timeout) }, 0},
		{"there are others", func(s *silences) {
			s.note(late, servers, 0, began, timeout)
			s.first(late, others, 0)
			s.note(late, servers, 0, began, timeout) // which is too late
			if n := s.first(late, others, 0); n != 0 {
				t.Errorf("of others the first is %d", n)
			}
		}, 0},
	} {
		s := new(silences)
		s.first(began, servers, 0)
		c.do(s)
		if n := s.first(late, servers, 0); n != c.want {
			t.Errorf("%s: the first is %d, want %d", c.what, n, c.want)
		}
	}
}

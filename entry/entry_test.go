package entry

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// talk feeds an entry with pieces, does what it asks for, and returns what the client sees, where
// it wants to go, and how many bytes were left over.
func talk(e Entry, said string, piece int, ok bool) (answers string, to Destination, rest string, err error) {
	for given := 0; ; {
		used, step, err := e.Feed([]byte(said[:given]))
		said, given = said[used:], given-used
		answers += string(step.Reply)
		if step.Login {
			answers += string(e.LoggedIn(ok && step.User == "ann" && step.Password == "se:cret"))
			if !ok {
				return answers, to, said, err
			}
		}
		switch {
		case err != nil || step.Relay || step.To != Destination{}:
			return answers, step.To, said, err
		case step.IsZero() && given == len(said):
			return answers, to, said, nil
		case step.IsZero():
			given = min(given+piece, len(said))
		}
	}
}

const (
	annSOCKS = "\x01\x03ann\x07se:cret"
	annHTTP  = "Proxy-Authorization: Basic YW5uOnNlOmNyZXQ=\r\n"
)

// A client says where it wants to go, in any pieces, and what follows stays.
func TestEntries(t *testing.T) {
	name := Destination{Name: "api.example", Port: 443}
	four, six := Destination{Addr: netip.MustParseAddr("203.0.113.7"), Port: 80}, Destination{Addr: netip.MustParseAddr("2001:db8::1"), Port: 443}
	for _, c := range []struct {
		entry         Entry
		said, answers string
		to            Destination
	}{
		{&SOCKS5{}, "\x05\x01\x00\x05\x01\x00\x03\x0bAPI.example\x01\xbb", "\x05\x00", name},
		{&SOCKS5{}, "\x05\x02\x02\x00\x05\x01\x00\x01\xcb\x00\x71\x07\x00\x50", "\x05\x00", four},
		{&SOCKS5{}, "\x05\x01\x00\x05\x01\x00\x03\x0b203.0.113.7\x00\x50", "\x05\x00", four},
		{&SOCKS5{}, "\x05\x01\x00\x05\x01\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x01\xbb", "\x05\x00", six},
		{&SOCKS5{Users: true}, "\x05\x02\x00\x02" + annSOCKS + "\x05\x01\x00\x03\x0bapi.example\x01\xbb", "\x05\x02\x01\x00", name},
		{&Connect{}, "CONNECT api.example:443 HTTP/1.1\r\nHost: other:1\r\n\r\n", "", name},
		{&Connect{}, "CONNECT 203.0.113.7:80 HTTP/1.0\r\n\r\n", "", four},
		{&Connect{}, "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "", six},
		{&Connect{Users: true}, "CONNECT api.example.:443 HTTP/1.1\r\n" + annHTTP + "\r\n", "", name},
	} {
		for _, piece := range []int{1, 7, 1000} {
			e := reflect.New(reflect.TypeOf(c.entry).Elem())
			e.Elem().Set(reflect.ValueOf(c.entry).Elem())
			answers, to, rest, err := talk(e.Interface().(Entry), c.said+"payload", piece, true)
			answers += string(e.Interface().(Entry).Connected(four.addrPort()))
			if answers != c.answers+granted(c.entry) || to != c.to || rest != "payload" || err != nil {
				t.Errorf("%q in pieces of %d: %q, %v, %q, %v", c.said, piece, answers, to, rest, err)
			}
		}
	}
}

func (d Destination) addrPort() netip.AddrPort { return netip.AddrPortFrom(d.Addr, d.Port) }

// granted returns how an entry answers a request whose destination is reached from 203.0.113.7:80.
func granted(e Entry) string {
	if _, ok := e.(*SOCKS5); ok {
		return "\x05\x00\x00\x01\xcb\x00\x71\x07\x00\x50"
	}
	return "HTTP/1.1 200 Connection established\r\n\r\n"
}

// A SOCKS client that does not wait for the answer to its methods gets both answers together.
func TestAnswersTogether(t *testing.T) {
	const hello, request = "\x05\x01\x00", "\x05\x01\x00\x01\xcb\x00\x71\x07\x00\x50"
	from := netip.MustParseAddrPort("203.0.113.7:80")
	for _, end := range []struct {
		answer func(Entry) []byte
		want   string
	}{
		{func(e Entry) []byte { return e.Connected(from) }, "\x05\x00\x05\x00\x00\x01\xcb\x00\x71\x07\x00\x50"},
		{func(e Entry) []byte { return e.Refused(Denied) }, "\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"},
	} {
		e := &SOCKS5{}
		used, step, err := e.Feed([]byte(hello + request + "payload"))
		if used != len(hello+request) || step.Reply != nil || step.To.Addr != from.Addr() || err != nil {
			t.Fatalf("%d bytes are used: %+v, %v", used, step, err)
		}
		if got := string(end.answer(e)); got != end.want {
			t.Errorf("the answer is %q, want %q", got, end.want)
		}
	}
}

// What is no request, no login, or no destination is refused, with the answer of the protocol.
func TestBadEntries(t *testing.T) {
	const hello = "\x05\x01\x00"
	for _, c := range []struct {
		entry         Entry
		said, answers string
	}{
		{&SOCKS5{}, "\x04\x01", ""}, {&SOCKS5{}, "GET / HTTP/1.1\r\n\r\n", ""}, {&SOCKS5{}, "\x05\x00", "\x05\xff"}, {&SOCKS5{}, "\x05\x01\x02", "\x05\xff"},
		{&SOCKS5{Users: true}, hello, "\x05\xff"}, {&SOCKS5{Users: true}, "\x05\x01\x02\x05", "\x05\x02"}, {&SOCKS5{Users: true}, "\x05\x01\x02\x01\x00\x00", "\x05\x02"},
		{&SOCKS5{}, hello + "\x05\x02\x00\x01\xcb\x00\x71\x07\x00\x50", "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00"},
		{&SOCKS5{}, hello + "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00"},
		{&SOCKS5{NoStreams: true, Datagrams: true}, hello + "\x05\x01\x00\x01\xcb\x00\x71\x07\x00\x50", "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00"},
		{&SOCKS5{Datagrams: true}, hello + "\x05\x03\x00\x02", "\x05\x00\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00"},
		{&SOCKS5{}, hello + "\x05\x01\x00\x02", "\x05\x00\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00"},
		{&SOCKS5{}, hello + "\x05\x01\x00\x01\xcb\x00\x71\x07\x00\x00", "\x05\x00\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00"},
		{&SOCKS5{}, hello + "\x05\x01\x01\x01\xcb\x00\x71\x07\x00\x50", "\x05\x00"},
		{&Connect{}, "\x05\x01\x00", answerBad}, {&Connect{}, "connect a.example:1 HTTP/1.1\r\n\r\n", answerMethod}, {&Connect{}, "CONNECT a.example:1 HTTP/2\r\n\r\n", answerBad},
		{&Connect{}, "CONNECT a.example:1\r\n\r\n", answerBad}, {&Connect{}, "CONNECT  a.example:1 HTTP/1.1\r\n\r\n", answerBad},
		{&Connect{}, "GET http://a.example/ HTTP/1.1\r\n\r\n", answerMethod}, {&Connect{}, "CONNECT a.example HTTP/1.1\r\n\r\n", answerBad},
		{&Connect{}, "CONNECT a.example:0 HTTP/1.1\r\n\r\n", answerBad}, {&Connect{}, "CONNECT a.example:080 HTTP/1.1\r\n\r\n", answerBad},
		{&Connect{}, "CONNECT a.example:65536 HTTP/1.1\r\n\r\n", answerBad}, {&Connect{}, "CONNECT user@a.example:1 HTTP/1.1\r\n\r\n", answerBad},
		{&Connect{}, "CONNECT a.example:1 HTTP/1.1\r\nA\r\n\r\n", answerBad}, {&Connect{}, "CONNECT a.example:1 HTTP/1.1\r\nA : b\r\n\r\n", answerBad},
		{&Connect{}, "CONNECT a.example:1 HTTP/1.1\n\n", answerBad},
		{&Connect{}, "CONNECT a.example:1 HTTP/1.1\nA: b\r\n\r\n", answerBad}, {&Connect{}, "CONNECT a.example:1 HTTP/1.1\r\nA: b\r\n c\r\n\r\n", answerBad},
		{&Connect{}, "CONNECT a.example:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\n", answerBad}, {&Connect{}, "CONNECT a.example:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", answerBad},
		{&Connect{Users: true}, "CONNECT a.example:1 HTTP/1.1\r\n\r\n", answerLogin}, {&Connect{Users: true}, "CONNECT a.example:1 HTTP/1.1\r\nProxy-Authorization: Bearer x\r\n\r\n", answerLogin},
		{&Connect{Users: true}, "CONNECT a.example:1 HTTP/1.1\r\n" + annHTTP + annHTTP + "\r\n", answerBad},
		{&Connect{Users: true}, "CONNECT a.example:1 HTTP/1.1\r\nProxy-Authorization: Basic !\r\n\r\n", answerLogin},
		{&Connect{}, "CONNECT a.example:1 HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", MaxEntry/6), answerHead},
	} {
		if answers, to, _, err := talk(c.entry, c.said, 1000, true); answers != c.answers || to != (Destination{}) || err == nil {
			t.Errorf("%T: %.80q: %q, %v, %v, want %q", c.entry, c.said, answers, to, err, c.answers)
		}
	}
	for said, e := range map[string]Entry{"\x05\x01\x02" + annSOCKS: &SOCKS5{Users: true}, "CONNECT a.example:1 HTTP/1.1\r\n" + annHTTP + "\r\n": &Connect{Users: true}} {
		want := map[bool]string{true: "\x05\x02\x01\x01", false: answerLogin}[said[0] == 5]
		if answers, _, _, _ := talk(e, said, 1000, false); answers != want {
			t.Errorf("a wrong password is answered by %q", answers)
		}
	}
}

// A request with a URL leads to the server of the URL, which gets the path, and nothing that
// concerns the proxy only.
func TestForwardedRequests(t *testing.T) {
	name := Destination{Name: "api.example", Port: 80}
	for _, c := range []struct {
		said string
		to   Destination
		head string
	}{
		{"GET http://API.example/a?b HTTP/1.1\r\nHost: other\r\nA: b\r\n\r\n", name, "GET /a?b HTTP/1.1\r\nHost: API.example\r\nA: b\r\nVia: 1.1 shaper\r\nConnection: close\r\n\r\n"},
		{"GET HTTP://api.example:8080 HTTP/1.0\r\n\r\n", Destination{Name: "api.example", Port: 8080}, "GET / HTTP/1.0\r\nHost: api.example:8080\r\nVia: 1.0 shaper\r\nConnection: close\r\n\r\n"},
		{"OPTIONS http://api.example HTTP/1.1\r\n\r\n", name, "OPTIONS * HTTP/1.1\r\nHost: api.example\r\nVia: 1.1 shaper\r\nConnection: close\r\n\r\n"},
		{"GET http://api.example?q HTTP/1.1\r\nConnection: X, keep-alive\r\nx: 1\r\nY: 2\r\nKeep-Alive: 5\r\nProxy-Connection: z\r\nZ: 3\r\nUpgrade: h2c\r\nTE: trailers\r\n\r\n", name,
			"GET /?q HTTP/1.1\r\nHost: api.example\r\nY: 2\r\nVia: 1.1 shaper\r\nConnection: close\r\n\r\n"},
		{"POST http://[2001:db8::1]/ HTTP/1.1\r\nContent-Length: 7\r\n\r\n", Destination{Addr: netip.MustParseAddr("2001:db8::1"), Port: 80},
			"POST / HTTP/1.1\r\nHost: [2001:db8::1]\r\nContent-Length: 7\r\nVia: 1.1 shaper\r\nConnection: close\r\n\r\n"},
		{"POST http://api.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + annHTTP + "\r\n", name, "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\nVia: 1.1 shaper\r\nConnection: close\r\n\r\n"},
	} {
		e := &Connect{Forward: true}
		used, step, err := e.Feed([]byte(c.said + "payload"))
		if used != len(c.said) || step.To != c.to || string(step.Head) != c.head || err != nil || e.Connected(netip.AddrPort{}) != nil {
			t.Errorf("%q: %d, %v, %q, %v", c.said, used, step.To, step.Head, err)
		}
	}
	for _, said := range []string{
		"GET / HTTP/1.1\r\n\r\n", "GET https://a.example/ HTTP/1.1\r\n\r\n", "GET ftp://a.example/ HTTP/1.1\r\n\r\n", "GET http:///x HTTP/1.1\r\n\r\n", "GET http:// HTTP/1.1\r\n\r\n",
		"GET http://u:p@a.example/ HTTP/1.1\r\n\r\n", "GET http://a.example:0/ HTTP/1.1\r\n\r\n", "GET http://a.example:/ HTTP/1.1\r\n\r\n", "GET http://a.example/#x HTTP/1.1\r\n\r\n",
		"GET http://2130706433/ HTTP/1.1\r\n\r\n", "GET http://0x7f.1/ HTTP/1.1\r\n\r\n", "GET http://[::1%25lo]/ HTTP/1.1\r\n\r\n", "GET http://::1/ HTTP/1.1\r\n\r\n",
		"GET http://a.example/\u00e9 HTTP/1.1\r\n\r\n", "POST http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"POST http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST http://a.example/ HTTP/1.1\r\nConnection: Content-Length\r\nContent-Length: 1\r\n\r\n", "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	} {
		e := &Connect{Forward: true}
		if _, step, err := e.Feed([]byte(said)); err == nil || string(step.Reply) != answerBad || step.Head != nil {
			t.Errorf("%q: %+v, %v", said, step, err)
		}
	}
}

// A destination has one spelling: others, which some resolvers take for an address, are none.
func TestDestinations(t *testing.T) {
	for _, host := range []string{
		"", ".", "..", "a..b", "2130706433", "0x7f000001", "0x7f.1", "0x7f.0.0.1", "0177.0.0.1", "0177.0.0.01", "127.1", "127.0.1", "127.0.0.1.", "127.0.0.01", "127.0.0.0x1",
		"017700000001", "1.2.3.4.5", "256.0.0.1", "0x", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "169.254.43518", "[::1]", "::1%lo", "fe80::1%eth0", "::1%25lo", "[::ffff:127.0.0.1]",
		"a b", "a/b", "a:b", "a@b", "a\x00b", "a\nb", "a\tb", "\u2488", "\uff11\uff12\uff17.0.0.1", "\u24d0.example", "a%2eexample", "a,b", "a;b", "a?b", "a#b", "a\\b",
		strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "aa",
	} {
		if d, ok := DestinationOf(host, 80); ok {
			t.Errorf("%q is %v", host, d)
		}
	}
	for host, want := range map[string]string{
		"127.0.0.1": "127.0.0.1:80", "::ffff:127.0.0.1": "127.0.0.1:80", "::1": "[::1]:80", "0:0:0:0:0:0:0:1": "[::1]:80", "64:ff9b::127.0.0.1": "[64:ff9b::7f00:1]:80",
		"API.Example.": "api.example:80", "a_b-c.example": "a_b-c.example:80", "localhost": "localhost:80", "unix": "unix:80", "xn--bcher-kva.example": "xn--bcher-kva.example:80",
	} {
		if d, ok := DestinationOf(host, 80); !ok || d.String() != want {
			t.Errorf("%q is %v, %v, want %s", host, d, ok, want)
		}
	}
}

// Whatever comes, an entry uses no more than there is, changes nothing, and never goes on after its
// end.
func FuzzEntries(f *testing.F) {
	f.Add([]byte("\x05\x02\x00\x02"+annSOCKS+"\x05\x01\x00\x03\x0bapi.example\x01\xbb"), uint8(3))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x04\x20\x01\x0d\xb8"+strings.Repeat("\x00", 11)+"\x01\x01\xbb"), uint8(1))
	f.Add([]byte("POST http://api.example:8080/a?b HTTP/1.1\r\nContent-Length: 4\r\nConnection: x\r\n\r\nmore"), uint8(50))
	f.Add([]byte("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n"+annHTTP+"\r\nmore"), uint8(100))
	f.Fuzz(func(t *testing.T, said []byte, piece uint8) {
		for _, e := range []Entry{&SOCKS5{}, &SOCKS5{Users: true, Datagrams: true}, &Connect{}, &Connect{Users: true}, &Connect{Forward: true}} {
			kept := string(said)
			answers, to, rest, err := talk(e, kept, int(piece)+1, true)
			if string(said) != kept || !strings.HasSuffix(kept, rest) || len(answers) > 400 || err != nil && to != (Destination{}) {
				t.Fatalf("%T: %q: %q, %v, %q, %v", e, said, answers, to, rest, err)
			}
			if to != (Destination{}) {
				if again, ok := DestinationOf(strings.Trim(to.String()[:strings.LastIndexByte(to.String(), ':')], "[]"), to.Port); !ok || again != to {
					t.Fatalf("%v is not a destination of its own", to)
				}
			}
		}
	})
}

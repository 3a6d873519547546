package policy

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPer(t *testing.T) {
	conn := func(source, destination string) Conn {
		return Conn{Source: netip.MustParseAddrPort(source), Destination: netip.MustParseAddrPort(destination)}
	}
	const to = "192.0.2.1:80"
	for _, c := range []struct {
		per       string
		a, b      Conn
		same      bool
		describes string // of a
	}{
		{"source", conn("10.1.2.3:1", to), conn("10.1.2.3:2", to), true, "source 10.1.2.3/32"},
		{"source", conn("10.1.2.3:1", to), conn("10.1.2.4:1", to), false, "source 10.1.2.3/32"},
		{"source", conn("[::ffff:10.1.2.3]:1", to), conn("10.1.2.3:1", to), true, "source 10.1.2.3/32"},
		{"source", conn("[2001:db8::1]:1", to), conn("[2001:db8::ffff:1]:1", to), true, "source 2001:db8::/64"},
		{"source", conn("[2001:db8::1]:1", to), conn("[2001:db8:0:1::1]:1", to), false, "source 2001:db8::/64"},
		{"source", conn("[fe80::1%eth0]:1", to), conn("[fe80::1]:1", to), true, "source fe80::/64"},
		{"source/24", conn("10.1.2.3:1", to), conn("10.1.2.4:1", to), true, "source 10.1.2.0/24"},
		{"source/24", conn("10.1.2.3:1", to), conn("10.1.3.3:1", to), false, "source 10.1.2.0/24"},
		{"source/24", conn("[2001:db8::1]:1", to), conn("[2001:db8:0:1::1]:1", to), false, "source 2001:db8::/64"},
		{"source/128", conn("[2001:db8::1]:1", to), conn("[2001:db8::2]:1", to), false, "source 2001:db8::1/128"},
		{"source/128", conn("10.1.2.3:1", to), conn("10.1.2.4:1", to), false, "source 10.1.2.3/32"},
		{"source-port", conn("10.1.2.3:1", to), conn("10.1.2.4:1", to), true, "source port 1"},
		{"source-port", conn("10.1.2.3:1", to), conn("10.1.2.3:2", to), false, "source port 1"},
		{"destination", conn("10.1.2.3:1", to), conn("10.1.2.4:1", "192.0.2.1:81"), true, "destination 192.0.2.1"},
		{"destination", conn("10.1.2.3:1", to), conn("10.1.2.3:1", "192.0.2.2:80"), false, "destination 192.0.2.1"},
		{"destination", Conn{}, Conn{Session: 1}, true, "a destination that is not known"},
		{"source", Conn{}, Conn{Session: 1}, true, "clients without an address, those of unix sockets"},
		{"connection", Conn{Session: 1}, Conn{Session: 2}, false, "this connection"},
		{"connection", Conn{Session: 1}, Conn{Session: 1}, true, "this connection"},
	} {
		per := mustPer(t, c.per)
		if per.String() != c.per {
			t.Errorf("%q prints as %q", c.per, per)
		}
		if same := per.Key(&c.a, nil) == per.Key(&c.b, nil); same != c.same {
			t.Errorf("per %s: %v and %v have the same bucket: %v", c.per, c.a, c.b, same)
		}
		if got := per.Describe(c.a, Fields{}); got != c.describes {
			t.Errorf("per %s, %v: %q, want %q", c.per, c.a, got, c.describes)
		}
	}
}

func mustPer(t *testing.T, parts ...string) (p Per) {
	t.Helper()
	for _, part := range parts {
		if err := p.add(part); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// Messages have the same bucket if they say the same.
func TestPerMessage(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		per       []string
		a, b      Fields
		same      bool
		describes string // of a
	}{
		{[]string{"recipient"}, Fields{Recipient: "49171"}, Fields{Recipient: "49171", SourceAddr: "otp"}, true, `recipient "49171"`},
		{[]string{"recipient"}, Fields{Recipient: "49171"}, Fields{Recipient: "49172"}, false, `recipient "49171"`},
		{[]string{"recipient"}, Fields{SourceAddr: "a"}, Fields{SourceAddr: "b"}, true, `all messages without recipient`},
		{[]string{"source_addr", "recipient"}, Fields{SourceAddr: "a", Recipient: "bc"}, Fields{SourceAddr: "ab", Recipient: "c"}, false, `source_addr "a" and recipient "bc"`},
		{[]string{"source_addr", "recipient"}, Fields{SourceAddr: "a", Recipient: "b"}, Fields{SourceAddr: "b", Recipient: "a"}, false, `source_addr "a" and recipient "b"`},
		{[]string{"source_addr", "recipient"}, Fields{SourceAddr: "a"}, Fields{Recipient: "a"}, false, `source_addr "a" and all messages without recipient`},
		{[]string{"system_id"}, Fields{SystemID: "a"}, Fields{SystemID: "A"}, false, `system_id "a"`},
		{[]string{"host"}, Fields{Host: "A.example"}, Fields{Host: "a.EXAMPLE"}, true, `host "A.example"`},
		{[]string{"host"}, Fields{Host: long + ".A"}, Fields{Host: long + ".a"}, true, `host "` + long + `.A"`},
		{[]string{"method"}, Fields{Method: "GET"}, Fields{Method: "get"}, false, `method "GET"`},
		{[]string{"path"}, Fields{Path: "/a"}, Fields{Path: "/a/"}, false, `path "/a"`},
		{[]string{"path:/v1/*/x"}, Fields{Path: "/v1/a/x"}, Fields{Path: "/v1/b/x"}, false, `path "/v1/a/x"`},
		{[]string{"path:/v1/*/x"}, Fields{Path: "/v1/a"}, Fields{Path: "/v2/a/x"}, true, `all paths that are not like "/v1/*/x"`},
		{[]string{"header:X-Api-Key"}, Fields{Header: "x-api-key: "}, Fields{Header: "A: b"}, true, `all messages without header:X-Api-Key`},
		{[]string{"header:X-Api-Key"}, Fields{Header: "x-api-key:  one "}, Fields{Header: "A: b\r\nX-API-Key: one\r\n\r\n"}, true, `header:X-Api-Key "one"`},
		{[]string{"header:X-Api-Key"}, Fields{Header: "X-Api-Key: " + long + "1"}, Fields{Header: "X-Api-Key: " + long + "2"}, false, `header:X-Api-Key "` + long + `1"`},
		{[]string{"header:X-Api-Key"}, Fields{Header: "X-Api-Keys: 1"}, Fields{Header: "X-Api-Ke: 2"}, true, `all messages without header:X-Api-Key`},
		{[]string{"source", "method"}, Fields{Method: "GET"}, Fields{Method: "GET"}, true, `clients without an address, those of unix sockets and method "GET"`},
	} {
		per := mustPer(t, c.per...)
		if !per.ByMessage() || per.String() != strings.Join(c.per, ", ") {
			t.Errorf("%q prints as %q, by message: %v", c.per, per, per.ByMessage())
		}
		var back Per
		if text, _ := per.MarshalText(); back.UnmarshalText(text) != nil || back != per {
			t.Errorf("%v reads as %v", per, back)
		}
		if same := per.Key(&Conn{}, c.a.Message()) == per.Key(&Conn{}, c.b.Message()); same != c.same {
			t.Errorf("per %v: %+v and %+v have the same bucket: %v", per, c.a, c.b, same)
		}
		if got := per.Describe(Conn{}, c.a); got != c.describes {
			t.Errorf("per %v, %+v: %q, want %q", per, c.a, got, c.describes)
		}
	}
}

// Connections have the same bucket if their clients say the same at an entry.
func TestPerOfEntries(t *testing.T) {
	for _, c := range []struct {
		per       []string
		a, b      Conn
		same      bool
		describes string // of a
	}{
		{[]string{"user"}, Conn{User: "ann", ServerName: "a.example"}, Conn{User: "ann", ServerName: "b.example"}, true, `user "ann"`},
		{[]string{"user"}, Conn{User: "ann"}, Conn{User: "bob"}, false, `user "ann"`},
		{[]string{"user"}, Conn{}, Conn{ServerName: "x"}, true, "all connections without user"},
		{[]string{"server_name"}, Conn{ServerName: "a.example"}, Conn{User: "x", ServerName: "a.example"}, true, `server_name "a.example"`},
		{[]string{"user", "server_name"}, Conn{User: "a", ServerName: "b"}, Conn{User: "b", ServerName: "a"}, false, `user "a" and server_name "b"`},
		{[]string{"user", "server_name"}, Conn{User: "a", ServerName: "b"}, Conn{User: "a", ServerName: "b"}, true, `user "a" and server_name "b"`},
	} {
		per := mustPer(t, c.per...)
		if same := per.Key(&c.a, nil) == per.Key(&c.b, nil); same != c.same || per.ByMessage() {
			t.Errorf("per %v: %+v and %+v have the same bucket: %v", per, c.a, c.b, same)
		}
		if got := per.Describe(c.a, Fields{}); got != c.describes {
			t.Errorf("per %v, %+v: %q, want %q", per, c.a, got, c.describes)
		}
		if n := testing.AllocsPerRun(100, func() { per.Key(&c.a, nil) }); n != 0 {
			t.Errorf("per %v: a key allocates %v times", per, n)
		}
	}
}

// A key does not show what it stands for, and another process has other keys.
func TestPerIsSecret(t *testing.T) {
	per, m := mustPer(t, "recipient"), (&Fields{Recipient: "49171"}).Message()
	before, kept := per.Key(&Conn{}, m), Secret()
	defer UseSecret(kept)
	other := Secret()
	other[0]++
	if UseSecret(other); per.Key(&Conn{}, m) == before {
		t.Error("a key does not depend on the secret")
	}
	if UseSecret(nil); !bytes.Equal(Secret(), other) {
		t.Error("nothing is a secret")
	}
	if UseSecret(kept); per.Key(&Conn{}, m) != before {
		t.Error("the same secret gives another key")
	}
}

func TestPerAllocates(t *testing.T) {
	per := mustPer(t, "source", "header:X-Api-Key", "path:/v1/*/x")
	m := (&Fields{Path: "/v1/a/x", Header: "X-Api-Key: " + strings.Repeat("x", 100)}).Message()
	c := Conn{Source: netip.MustParseAddrPort("10.0.0.1:1")}
	if n := testing.AllocsPerRun(100, func() { per.Key(&c, m) }); n != 0 {
		t.Errorf("a key allocates %v times", n)
	}
}

func TestPathPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		match         bool
	}{
		{"/v1/*/x", "/v1/a/x", true}, {"/v1/*/x", "/v1//x", true}, {"/v1/*/x", "/v1/a/b/x", false}, {"/v1/*/x", "/v1/a/x/", false},
		{"/v1/*/x", "/v1/a", false}, {"/v1/*", "/v1", false}, {"/v1/*", "/v1/", true}, {"/*", "/", true}, {"/", "/", true}, {"/", "", false},
		{"/user-*.json", "/user-7.json", true}, {"/user-*.json", "/user-.json", true}, {"/user-*.json", "/user.json", false},
		{"/a*a", "/a", false}, {"/a*a", "/aa", true}, {"/*/*", "/a/b", true}, {"/*/*", "*", false},
	} {
		if got := matchPath(c.pattern, []byte(c.path)); got != c.match || checkPathPattern(c.pattern) != nil {
			t.Errorf("%q matches %q: %v", c.pattern, c.path, got)
		}
	}
}

func TestPerOfNone(t *testing.T) {
	var none, read Per
	if none.String() != "" || none.Describe(Conn{}, Fields{}) != "" {
		t.Errorf("one bucket for all prints as %q", none)
	}
	text, _ := Per{{By: BySource, IPv4: 32, IPv6: 56}}.MarshalText()
	if err := read.UnmarshalText(text); err != nil || read != (Per{{By: BySource, IPv4: 32, IPv6: 56}}) {
		t.Errorf("%s reads as %v: %v", text, read, err)
	}
	if err := read.UnmarshalText(nil); err != nil || read != none {
		t.Errorf("the empty text reads as %v: %v", read, err)
	}
}

// A listener needs the destination if it can lead to a class with a bucket for each
// destination.
func TestPerDestinationIsNeeded(t *testing.T) {
	p := mustParse(t, `
[class.a]
rate = "1mbit"
per = "destination"
[class.b]
rate = "1mbit"
[listener.x]
listen = "127.0.0.1:1"
upstream = "192.0.2.1:1"
class = "a"
[listener.y]
listen = "127.0.0.1:2"
upstream = "192.0.2.1:1"
class = "b"
[listener.z]
listen = "127.0.0.1:3"
upstream = "192.0.2.1:1"
class = "b"
[[rule]]
listener = "z"
source = "10.0.0.1"
class = "b"
return_class = "a"
`)
	c := Compile(p)
	for listener, want := range map[string]bool{"x": true, "y": false, "z": true} {
		if c.NeedsDestination(listener) != want {
			t.Errorf("listener %s needs a destination: %v", listener, !want)
		}
	}
	e := c.Explain(Conn{Listener: "x", Destination: netip.MustParseAddrPort("192.0.2.9:1")}, Fields{})
	if want := "class a, the bucket of destination 192.0.2.9: no rule matches, so it is the class of listener \"x\"\n  not rule 1 (test.toml:19): it is not for listener \"x\"\n"; e.String() != want {
		t.Errorf("Explain returns %q, want %q", e, want)
	}
	e = c.Explain(Conn{Listener: "z", Source: netip.MustParseAddrPort("10.0.0.1:1"), Destination: netip.MustParseAddrPort("192.0.2.9:1")}, Fields{})
	if want := "class b, back to the client class a, the bucket of destination 192.0.2.9: rule 1 "; !strings.HasPrefix(e.String(), want) {
		t.Errorf("Explain returns %q, want %q", e, want)
	}
}

// With does not change what has a bucket.
func TestPerIsNotSet(t *testing.T) {
	p := mustParse(t, "[class.a]\nrate = \"1mbit\"\nper = \"source\"\n[listener.x]\nlisten = \"127.0.0.1:1\"\nupstream = \"192.0.2.1:1\"\nclass = \"a\"\n")
	for _, value := range []string{"source/24", "connection"} {
		if _, _, err := p.With("a", map[string]string{"per": value}); err == nil {
			t.Errorf("With accepts per = %s", value)
		}
	}
	if next, _, err := p.With("a", map[string]string{"max_keys": "10"}); err != nil || next.Classes[0].MaxKeys != 10 {
		t.Errorf("With refuses max_keys: %v", err)
	}
}

// A class beneath one with per has the same keys, whatever the order of the file, and goes on to have them when those are set. It
// may say so itself.
func TestPerIsThatOfTheParent(t *testing.T) {
	p := mustParse(t, `
		[class.c]
		parent = "b"
		rate = "1mbit"
		[class.b]
		parent = "a"
		rate = "1mbit"
		per = "source/24"
		[class.a]
		rate = "10mbit"
		per = "source/24"
		max_keys = 7
		[class.plain]
		rate = "1mbit"
		[listener.x]
		listen = "127.0.0.1:1"
		upstream = "192.0.2.1:1"
		class = "c"
`)
	per := func(p *Policy) (all []string) {
		for _, class := range p.Classes {
			all = append(all, fmt.Sprint(class.Name, " ", class.Per, " ", class.MaxKeys))
		}
		return all
	}
	if diff := cmp.Diff([]string{"c source/24 7", "b source/24 7", "a source/24 7", "plain  65536"}, per(p)); diff != "" {
		t.Error(diff)
	}
	next, _, err := p.With("a", map[string]string{"max_keys": "9"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"c source/24 9", "b source/24 9", "a source/24 9", "plain  65536"}, per(next)); diff != "" {
		t.Error(diff)
	}
	if _, _, err = next.With("c", map[string]string{"max_keys": "8"}); err == nil || !strings.Contains(err.Error(), `set it of "b"`) {
		t.Errorf("other keys than those of the parent are set: %v", err)
	}
}

// With a secret that processes share, they have the same keys; the secret of the process plays no part.
func TestKeyWithASharedSecret(t *testing.T) {
	c, m := &Conn{User: "ann", ServerName: "api.acme.example"}, &Message{Recipient: []byte("4477")}
	kept, shared, other := Secret(), [32]byte{1}, [32]byte{2}
	for _, per := range []Per{{{By: ByRecipient}}, {{By: ByUser}}, {{By: ByServerName}}, {{By: ByUser}, {By: ByRecipient}}} {
		one := per.KeyWith(&shared, c, m)
		UseSecret(make([]byte, len(kept)))
		if per.KeyWith(&shared, c, m) != one {
			t.Errorf("%v: two processes with one secret have different keys", per)
		}
		if per.KeyWith(&other, c, m) == one || per.Key(c, m) == one {
			t.Errorf("%v: another secret gives the same key", per)
		}
		UseSecret(kept)
	}
}

// A key is all of its numbers.
func TestKeyOfNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k Key
		copy(k.addr[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address"))
		k.port = rapid.Uint16().Draw(t, "port")
		if got := KeyOf(k.Numbers()); got != k {
			t.Fatalf("%v of the numbers of %v", got, k)
		}
	})
}

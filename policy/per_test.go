package policy

import (
	"net/netip"
	"strings"
	"testing"
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
		per, err := parsePer(c.per)
		if err != nil {
			t.Fatal(err)
		}
		if per.String() != c.per {
			t.Errorf("%q prints as %q", c.per, per)
		}
		if same := per.Key(c.a) == per.Key(c.b); same != c.same {
			t.Errorf("per %s: %v and %v have the same bucket: %v", c.per, c.a, c.b, same)
		}
		if got := per.Describe(c.a); got != c.describes {
			t.Errorf("per %s, %v: %q, want %q", c.per, c.a, got, c.describes)
		}
	}
}

func TestPerOfNone(t *testing.T) {
	var none, read Per
	if none.String() != "" || none.Describe(Conn{}) != "" {
		t.Errorf("one bucket for all prints as %q", none)
	}
	text, _ := Per{BySource, 32, 56}.MarshalText()
	if err := read.UnmarshalText(text); err != nil || read != (Per{BySource, 32, 56}) {
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
		if _, err := p.With("a", map[string]string{"per": value}); err == nil {
			t.Errorf("With accepts per = %s", value)
		}
	}
	if next, err := p.With("a", map[string]string{"max_keys": "10"}); err != nil || next.Classes[0].MaxKeys != 10 {
		t.Errorf("With refuses max_keys: %v", err)
	}
}

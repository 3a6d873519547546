package policy

import (
	"net/netip"
	"strings"
	"testing"
)

// Explain says what rules see of a client of an entry.
func TestExplainEntries(t *testing.T) {
	p, _, err := Load("testdata/good/entries.toml")
	if err != nil {
		t.Fatal(err)
	}
	c := Compile(p)
	for _, one := range []struct {
		conn  Conn
		class string
		says  []string
	}{
		{Conn{Listener: "out", User: "ann"}, "all", []string{`user "ann" is like ann, ops-*`}},
		{Conn{Listener: "out", User: "ops-1"}, "all", []string{"user"}},
		{Conn{Listener: "out", User: "bob"}, "user", []string{`user "bob" is not like`, `the bucket of user "bob" and destination 203.0.113.9`, "it is not for listener"}},
		{Conn{Listener: "out"}, "user", []string{"the user is not known", `all connections without user`}},
		{Conn{Listener: "web", ServerName: "api.acme.example"}, "sms", []string{"it is not for listener", `server_name "api.acme.example" is like *.acme.example`}},
		{Conn{Listener: "web", ServerName: "acme.example"}, "sms", []string{`server_name "acme.example" is not like`}},
	} {
		one.conn.Source = netip.MustParseAddrPort("127.0.0.1:5")
		one.conn.Destination = netip.MustParseAddrPort("203.0.113.9:443")
		e := c.Explain(one.conn, Fields{})
		if e.Class != one.class || c.Classify(one.conn).Class != one.class {
			t.Errorf("%+v: class %s, want %s", one.conn, e.Class, one.class)
		}
		for _, says := range one.says {
			if !strings.Contains(e.String(), says) {
				t.Errorf("%+v: %s does not say %s", one.conn, e, says)
			}
		}
	}
}

// A rule about users or names matches no client that has not logged in, or asked for no name, also if any name would do.
// Explain says so too.
func TestNoNameIsLikeNothing(t *testing.T) {
	for _, key := range []string{"user", "server_name"} {
		p := mustParse(t, `
[class.named]
rate = "10mbit"
[class.rest]
rate = "1mbit"
[listener.out]
listen = "127.0.0.1:3128"
mode = "socks5"
allow = ["*:443"]
users = "users"
class = "rest"
[[rule]]
`+key+` = "*"
class = "named"
`)
		c := Compile(p)
		for conn, want := range map[Conn]string{
			{Listener: "out"}: "rest",
			{Listener: "out", User: "ann", ServerName: "a.example"}: "named",
		} {
			if traffic, says := c.Classify(conn).Class, c.Explain(conn, Fields{}).Class; traffic != want || says != want {
				t.Errorf("%s: a client of %+v has class %s, and explain says %s; want %s", key, conn, traffic, says, want)
			}
		}
	}
}

// Rules that look at users or names do not allocate.
func TestEntryRulesAllocate(t *testing.T) {
	p, _, err := Load("testdata/good/entries.toml")
	if err != nil {
		t.Fatal(err)
	}
	c, conn := Compile(p), Conn{Listener: "web", ServerName: strings.Repeat("a", 200) + ".acme.example"}
	if n := testing.AllocsPerRun(100, func() { c.Classify(conn) }); n != 0 {
		t.Errorf("Classify allocates %v times", n)
	}
}

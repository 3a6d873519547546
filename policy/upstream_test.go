package policy

import (
	"fmt"
	"strings"
	"testing"
)

// listening is a policy with a listener of a protocol, and more lines in its section.
func listening(protocol string, lines ...string) string {
	return "[class.a]\nrate = \"1mbit\"\n[listener.x]\nlisten = \"127.0.0.1:1\"\nclass = \"a\"\nprotocol = \"" + protocol + "\"\n" + strings.Join(lines, "\n") + "\n"
}

func TestUpstreams(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{`upstream = "a.example:1"`, "[a.example:1] [] order "},
		{`upstream = ["a.example:1", "srv:_smpp._tcp.b.example"]`, "[a.example:1 srv:_smpp._tcp.b.example] [] order "},
		{`upstream = ["a.example:1", { address = "b.example:1", weight = 3 }, { address = "c.example:1" }]` + "\nbalance = \"round-robin\"",
			"[a.example:1 b.example:1 c.example:1] [1 3 1] round-robin "},
		{`upstream = { address = "b.example:1", weight = 3 }` + "\nbalance = \"least-connections\"", "[b.example:1] [3] least-connections "},
		{`upstream = "a.example:1"` + "\nhealth = {}", `[a.example:1] [] order { every = "5s", timeout = "2s", tcp = true, rise = 2, fall = 3 }`},
		{`upstream = "a.example:1"` + "\nhealth = { http = \"/x\", every = \"1min\" }", `[a.example:1] [] order { every = "1min", timeout = "2s", http = "/x", rise = 2, fall = 3 }`},
		{`upstream = "a.example:1"` + "\nhealth = { smpp = true, rise = 1 }", `[a.example:1] [] order { every = "5s", timeout = "2s", smpp = true, rise = 1, fall = 3 }`},
	} {
		p, _, err := Parse("x.toml", []byte(listening("tcp", c.lines)))
		if err != nil {
			t.Errorf("%s: %v", c.lines, err)
			continue
		}
		l := p.Listeners[0]
		if got := fmt.Sprintf("%v %v %s %s", l.Upstream, l.Weights, l.Balance, l.Health); got != c.want {
			t.Errorf("%s: %s, want %s", c.lines, got, c.want)
		}
	}
}

func TestServerName(t *testing.T) {
	for upstream, want := range map[string]string{
		"a.example:1": "a.example", "a.example.:1": "a.example", "[fe80::1%lo]:1": "fe80::1", "192.0.2.1:1": "192.0.2.1",
		"srv:_smpp._tcp.acme.example": "acme.example", "srv:_smpp._tcp.acme.example.": "acme.example",
	} {
		if got := ServerName(upstream); got != want {
			t.Errorf("%s: %s, want %s", upstream, got, want)
		}
	}
}

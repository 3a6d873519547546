package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// The rules assign classes to clients by source address and by port.
func TestClientsGetTheClassesOfTheirRules(t *testing.T) {
	t.Parallel()
	p, ports := startClasses(t)
	for i, test := range []struct{ from, port, class string }{
		{"127.0.0.1", ports[0], "other"},
		{"127.0.0.2", ports[0], "two"},
		{"127.0.0.3", ports[0], "three"},
		{"127.0.0.1", ports[1], "door"},
		{"127.0.0.3", ports[1], "three"}, // the rule of source 127.0.0.3 comes first
	} {
		t.Run(test.from+" to port "+fmt.Sprint(i), func(t *testing.T) {
			before := p.class(test.class).Sent["upstream"].Bytes
			c := dial(t, test.from, "127.0.0.1:"+test.port)
			if got := echo(t, c, 1000+i); got != 1000+i {
				t.Fatalf("%d bytes came back, want %d", got, 1000+i)
			}
			if got := p.class(test.class).Sent["upstream"].Bytes - before; got != uint64(1000+i) {
				t.Errorf("class %s counts %d bytes, want %d", test.class, got, 1000+i)
			}
			checkSession(t, p, c.LocalAddr().String(), test.class)
			checkExplain(t, p, test.from, test.port, test.class)
		})
	}
}

func startClasses(t *testing.T) (p *program, ports [2]string) {
	ports = [2]string{freePort(t), freePort(t)}
	return start(t, plain(), strings.NewReplacer("PORT0", ports[0], "PORT1", ports[1]).Replace(`
[class.other]
rate = "10MB/s"
[class.two]
rate = "10MB/s"
[class.three]
rate = "10MB/s"
[class.door]
rate = "10MB/s"
[listener.a]
listen = ["127.0.0.1:PORT0", "127.0.0.1:PORT1"]
upstream = "echo:"
class = "other"
[[rule]]
source = "127.0.0.2"
class = "two"
[[rule]]
source = "127.0.0.3"
class = "three"
[[rule]]
port = PORT1
class = "door"
`)), ports
}

// echo sends n bytes to an echo upstream, and returns how many came back.
func echo(t *testing.T, c net.Conn, n int) int {
	t.Helper()
	if _, err := c.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadFull(c, make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// checkSession checks that `shaper sessions` shows a client in a class.
func checkSession(t *testing.T, p *program, client, class string) {
	t.Helper()
	for _, s := range p.sessions() {
		if s.Client == client {
			if s.Class != class {
				t.Errorf("shaper sessions shows %s in class %s, want %s", client, s.Class, class)
			}
			return
		}
	}
	t.Errorf("shaper sessions does not show %s", client)
}

// explained is what `explain --json` prints for one listener.
type explained struct {
	Class   string `json:"class"`
	Rule    int    `json:"rule"`
	Why     string `json:"why"`
	Skipped []struct {
		Rule int    `json:"rule"`
		Why  string `json:"why"`
	} `json:"skipped"`
}

// reasons holds, for each class, the reason that explain gives for it.
var reasons = map[string]string{
	"other": `no rule matches, so it is the class of listener "a"`,
	"two":   "source 127.0.0.2 is in 127.0.0.2/32",
	"three": "source 127.0.0.3 is in 127.0.0.3/32",
	"door":  "port PORT is in PORT",
}

// checkExplain checks that `shaper explain` names the class, its reason, and each rule before it
// that does not match.
func checkExplain(t *testing.T, p *program, source, port, class string) {
	t.Helper()
	var all []explained
	if err := json.Unmarshal([]byte(p.must("explain", source, "--port", port, "--json")), &all); err != nil || len(all) != 1 {
		t.Fatalf("explain --json: %v, %+v", err, all)
	}
	why := strings.ReplaceAll(reasons[class], "PORT", port)
	if e := all[0]; e.Class != class || e.Why != why || e.Rule != len(e.Skipped)+1 && e.Rule != 0 {
		t.Errorf("explain --json says %+v; want class %s: %s", e, class, why)
	}
	text := p.must("explain", source, "--port", port)
	if !strings.Contains(text, "class "+class) || !strings.Contains(text, why) {
		t.Errorf("explain says %q; want class %s: %s", text, class, why)
	}
	for _, s := range all[0].Skipped {
		if line := fmt.Sprintf("not rule %d", s.Rule); s.Why == "" || !strings.Contains(text, line) || !strings.Contains(text, s.Why) {
			t.Errorf("explain does not say %s: %s:\n%s", line, s.Why, text)
		}
	}
}

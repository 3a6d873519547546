package policy

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// overHTTP returns a policy with an http listener "x" to these upstreams, and with more lines
// in its section.
func overHTTP(upstream string, lines ...string) string {
	return "[class.a]\nrate = \"1mbit\"\n[listener.x]\nlisten = \"127.0.0.1:1\"\nprotocol = \"http\"\nclass = \"a\"\nupstream = " + upstream + "\n" +
		strings.Join(lines, "\n") + "\n"
}

// HostFor and check show what requests ask for.
func TestHost(t *testing.T) {
	const name, address, both = `"api.example:443"`, `"10.0.0.1:443"`, `["api.example:443", "10.0.0.1:443"]`
	const tls = "upstream_tls = true\n"
	for _, c := range []struct{ upstream, lines, hosts, printed string }{
		{name, tls, "api.example:443", "upstream"},
		{name, "", "-", "client"},
		{address, tls, "-", "client"},
		{both, tls, "api.example:443 -", "upstream for names, client for addresses"},
		{`"[::1]:443"`, tls, "-", "client"},
		{`"echo:"`, `host = "upstream"`, "-", "upstream"},
		{both, tls + `host = "client"`, "- -", "client"},
		{both, `host = "upstream"`, "api.example:443 10.0.0.1:443", "upstream"},
		{both, `host = "other.example"`, "other.example other.example", "other.example"},
		{name, `host = "other.example:8080"`, "other.example:8080", "other.example:8080"},
		{name, `host = "client1"`, "client1", "client1"},
		{name, `host = "clients"`, "clients", "clients"},
		{name, `host = "upstream:80"`, "upstream:80", "upstream:80"},
		{name, `host = "10.1.2.3"`, "10.1.2.3", "10.1.2.3"},
		{name, `host = "[fd00::1]"`, "[fd00::1]", "[fd00::1]"},
		{name, `host = "[fd00::1]:81"`, "[fd00::1]:81", "[fd00::1]:81"},
	} {
		p := mustParse(t, overHTTP(c.upstream, c.lines))
		l := &p.Listeners[0]
		var hosts []string
		for _, upstream := range l.Upstream {
			hosts = append(hosts, orDash(l.HostFor(upstream)))
		}
		if got := strings.Join(hosts, " "); got != c.hosts {
			t.Errorf("%s with %s asks for %s, want %s", c.upstream, c.lines, got, c.hosts)
		}
		var b strings.Builder
		if err := p.WriteTree(&b); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?m)^ *host +` + regexp.QuoteMeta(c.printed) + `( |$)`).MatchString(b.String()) {
			t.Errorf("%s with %s prints as\n%s", c.upstream, c.lines, &b)
		}
	}
	var b strings.Builder
	mustParse(t, withTLS()).WriteTree(&b)
	if strings.Contains(b.String(), "host  ") {
		t.Errorf("a tcp listener prints a host:\n%s", &b)
	}
}

func TestHostErrors(t *testing.T) {
	const at = "t.toml:8:8: listener.x.host: "
	for value, want := range map[string]string{
		"UPSTREAM":        `"UPSTREAM" is not known; did you mean "upstream"?`,
		"Client":          `"Client" is not known; did you mean "client"?`,
		"":                `"" is not a host; ` + hostForm,
		"https://a.b":     `"https://a.b" has no valid port; ` + hostForm,
		"api.example:":    `"api.example:" has no valid port; ` + hostForm,
		"api.example:0":   `"api.example:0" has no valid port; ` + hostForm,
		"a b.example":     `"a b.example" is not a host; ` + hostForm,
		"a.example\\r\\n": `"a.example\r\n" is not a host; ` + hostForm,
		"fd00::1":         `"fd00::1" is not a host; write an IPv6 address in brackets: "[fd00::1]"`,
		"[fe80::1%eth0]":  `"[fe80::1%eth0]" is not a host; ` + hostForm,
	} {
		_, _, err := Parse("t.toml", []byte(overHTTP(`"a.example:1"`, fmt.Sprintf("host = \"%s\"", value))))
		if err == nil || err.Error() != at+want {
			t.Errorf("%s: %v\nwant %s", value, err, at+want)
		}
	}
	_, _, err := Parse("t.toml", []byte(withTLS(`host = "upstream"`)))
	want := `t.toml:7:8: listener.x.host: the listener is for tcp, and only http has a Host; leave it out, or set protocol = "http"`
	if err == nil || err.Error() != want {
		t.Errorf("for tcp: %v", err)
	}
}

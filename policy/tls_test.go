package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withTLS returns a policy with a listener "x" and with more lines in its section.
func withTLS(lines ...string) string {
	return "[class.a]\nrate = \"1mbit\"\n[listener.x]\nlisten = \"127.0.0.1:1\"\nupstream = \"host.example:443\"\nclass = \"a\"\n" +
		strings.Join(lines, "\n") + "\n"
}

// TLS may be left out, or written in several forms.
func TestTLSSpellings(t *testing.T) {
	for _, c := range []struct {
		text     string
		tls      *ServerTLS
		upstream *ClientTLS
	}{
		{"", nil, nil},
		{"upstream_tls = false", nil, nil},
		{"upstream_tls = true", nil, &ClientTLS{}},
		{"upstream_tls = {}", nil, &ClientTLS{}},
		{"upstream_tls.server_name = \"other.example.\"", nil, &ClientTLS{ServerName: "other.example"}},
		{"upstream_tls = { server_name = \"2001:DB8::1\" }", nil, &ClientTLS{ServerName: "2001:db8::1"}},
		{"[listener.x.upstream_tls]\ninsecure = true", nil, &ClientTLS{Insecure: true}},
		{"[listener.x.tls]\ncert = \"c.pem\"\nkey = \"k.pem\"", &ServerTLS{Cert: "c.pem", Key: "k.pem"}, nil},
	} {
		l := mustParse(t, withTLS(c.text)).Listeners[0]
		if diff := cmp.Diff(c.tls, l.TLS); diff != "" {
			t.Errorf("%s: tls (-want +got):\n%s", c.text, diff)
		}
		if diff := cmp.Diff(c.upstream, l.UpstreamTLS); diff != "" {
			t.Errorf("%s: upstream_tls (-want +got):\n%s", c.text, diff)
		}
	}
}

// Relative paths begin at the directory of the policy file.
func TestTLSPathsAreBesideTheFile(t *testing.T) {
	p, _, err := Parse("/etc/shaper/shaper.toml", []byte(withTLS(`tls = { cert = "tls/c.pem", key = "/run/k.pem" }`)))
	if err != nil {
		t.Fatal(err)
	}
	if got := *p.Listeners[0].TLS; got != (ServerTLS{Cert: "/etc/shaper/tls/c.pem", Key: "/run/k.pem"}) {
		t.Errorf("the paths are %+v", got)
	}
}

func TestTLSIsPrintedAndCompared(t *testing.T) {
	none, both := mustParse(t, withTLS()), mustParse(t, withTLS(`tls = { cert = "/c.pem", key = "/k.pem" }`, "upstream_tls = true"))
	other := mustParse(t, withTLS(`tls = { cert = "/c.pem", key = "/k2.pem" }`, "upstream_tls = { insecure = true }"))
	for _, c := range []struct {
		p     *Policy
		lines []string
	}{
		{none, []string{"tls                 none     (default)", "upstream_tls        none     (default)"}},
		{both, []string{`tls                 { cert = "/c.pem", key = "/k.pem" }`, "upstream_tls        true"}},
		{other, []string{"upstream_tls        { insecure = true }"}},
	} {
		var b strings.Builder
		if err := c.p.WriteTree(&b); err != nil {
			t.Fatal(err)
		}
		for _, line := range c.lines {
			if !strings.Contains(b.String(), line) {
				t.Errorf("%q is missing in\n%s", line, b.String())
			}
		}
	}
	var got []string
	for _, c := range append(Diff(none, both), Diff(both, other)...) {
		got = append(got, c.String())
	}
	want := []string{
		`~ listener x: tls none -> { cert = "/c.pem", key = "/k.pem" }`,
		`~ listener x: upstream_tls none -> true`,
		`~ listener x: tls { cert = "/c.pem", key = "/k.pem" } -> { cert = "/c.pem", key = "/k2.pem" }`,
		`~ listener x: upstream_tls true -> { insecure = true }`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInsecureIsWarnedOf(t *testing.T) {
	_, warnings, err := Parse("t.toml", []byte(withTLS("upstream_tls = { insecure = true }")))
	want := "t.toml:7:29: listener.x.upstream_tls.insecure: nobody verifies the upstream: " +
		"anyone on the path can read and change everything; ca = the upstream's own certificate, or that of its authority"
	if err != nil || len(warnings) != 1 || warnings[0].Error() != want {
		t.Errorf("the warnings are %v, %v", warnings, err)
	}
}

// A private key that others may read gives a warning at its key in the policy.
func TestOpenKeyIsWarnedOf(t *testing.T) {
	dir := t.TempDir()
	key, file := filepath.Join(dir, "k.pem"), filepath.Join(dir, "p.toml")
	text := withTLS(`tls = { cert = "c.pem", key = "k.pem" }`)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o604: true} {
		os.Remove(key)
		if err := os.WriteFile(key, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(key, mode); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := Load(file)
		if err != nil || (len(warnings) == 1) != warned {
			t.Errorf("mode %#o: warned of %v, %v", mode, warnings, err)
		}
		if warned && warnings[0].Error() != file+":7:31: listener.x.tls.key: others may read "+key+
			map[os.FileMode]string{0o644: " (mode 0644)", 0o604: " (mode 0604)"}[mode]+"; chmod o= "+key {
			t.Errorf("the warning is %v", warnings[0])
		}
	}
}

// The position of a file that cannot be read is that of its key, or of the table that should
// contain the key.
func TestPlacesOfTLS(t *testing.T) {
	p := mustParse(t, withTLS(`tls = { cert = "c.pem", key = "k.pem" }`, "upstream_tls = true"))
	for key, column := range map[string]int{"tls.cert": 16, "tls.key": 31, "upstream_tls": 16} {
		e := p.BindError("listener.x."+key, "", "it is bad", "")
		if line := map[bool]int{true: 8, false: 7}[key == "upstream_tls"]; e.Line != line || e.Column != column {
			t.Errorf("%s is at %d:%d, want %d:%d", key, e.Line, e.Column, line, column)
		}
	}
}

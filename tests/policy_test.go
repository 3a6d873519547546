package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shaper/policy"
)

const validPolicy = `
[class.a]
rate = "10MB/s"
[listener.a]
listen = "127.0.0.1:0"
upstream = "echo:"
class = "a"
`

// fiveMistakes has one mistake on each of the lines 6, 7, 11, 13 and 16.
const fiveMistakes = daemonSection + `[class.a]
rate = "10MBs"
Queue = "100 items"
[listener.a]
listen = "127.0.0.1:0"
upstream = "echo:"
class = "b"
[[rule]]
port = "http"
class = "a"
[listener.b]
listen = 7
upstream = "echo:"
class = "a"
`

var wantMistakes = []string{
	`:6:8: class\.a\.rate: .+; .+`,
	`:7:1: class\.a\.Queue: unknown key; did you mean "queue"\?`,
	`:11:9: listener\.a\.class: there is no class "b"; .+`,
	`:13:8: rule\[1\]\.port: .+; .+`,
	`:16:10: listener\.b\.listen: .+; .+`,
}

// A policy with five mistakes gives five errors, each with file, line and column. A reload of it
// changes nothing.
func TestFiveMistakesAreFiveErrors(t *testing.T) {
	t.Parallel()
	p := start(t, plain(), validPolicy)
	before := p.status()
	c := dial(t, "", p.addr("a"))
	p.write(fiveMistakes)
	for _, command := range []string{"check", "reload"} {
		_, stderr, code := p.cli(command)
		if code != 65 {
			t.Errorf("shaper %s: exit %d, want 65", command, code)
		}
		lines := strings.Split(strings.TrimRight(stderr, "\n"), "\n")
		if len(lines) != len(wantMistakes) {
			t.Fatalf("shaper %s prints %d lines, want %d:\n%s", command, len(lines), len(wantMistakes), stderr)
		}
		for i, want := range wantMistakes {
			if !regexp.MustCompile("^" + regexp.QuoteMeta(p.config) + want + "$").MatchString(lines[i]) {
				t.Errorf("shaper %s: line %d is %q, want %s", command, i, lines[i], want)
			}
		}
	}
	if after := p.status(); after.PolicyHash != before.PolicyHash {
		t.Errorf("policy %s is in force, want %s as before", after.PolicyHash, before.PolicyHash)
	}
	if got := p.metric("shaper_config_last_reload_successful"); got != 0 {
		t.Errorf("shaper_config_last_reload_successful is %v, want 0", got)
	}
	echo(t, c, 100) // the open connection still works
	echo(t, dial(t, "", p.addr("a")), 100)
}

// A policy file that is cut at any byte is refused, or has the meaning of the whole file.
func TestPolicyCutAtEveryByte(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../shaper.toml")
	if err != nil {
		t.Fatal(err)
	}
	whole, _, err := policy.Parse("shaper.toml", data)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := range data {
		cut, _, err := policy.Parse("shaper.toml", data[:n])
		if err != nil {
			refused++
		} else if len(policy.Diff(whole, cut)) > 0 {
			t.Errorf("cut at byte %d of %d, the file is accepted as a different policy", n, len(data))
		}
	}
	t.Logf("of %d cuts, %d are refused and the others are the whole policy", len(data), refused)
	for n := 0; n < len(data); n += len(data)/20 + 1 {
		checkCut(t, data[:n], n)
	}
}

// checkCut checks that `shaper check` refuses a file that was cut at byte n.
func checkCut(t *testing.T, data []byte, n int) {
	t.Helper()
	p := &program{t: t, bin: plain(), config: filepath.Join(t.TempDir(), "cut.toml")}
	if err := os.WriteFile(p.config, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := p.cli("check"); code != 65 || !strings.HasPrefix(stderr, fmt.Sprintf("%s:", p.config)) {
		t.Errorf("cut at byte %d: exit %d, want 65: %s%s", n, code, stdout, stderr)
	}
}

package metrics

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"shaper/tests/trial"
)

// promtool runs Prometheus's checker. If it is not installed, the test is skipped, but
// fails in CI.
func promtool(t *testing.T, stdin string, args ...string) (output string, err error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		trial.SkipUnlessCI(t, "promtool is not installed: apt-get install prometheus")
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestCheckMetrics(t *testing.T) {
	answer := httptest.NewRecorder()
	Handler(fixed).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if out, err := promtool(t, answer.Body.String(), "check", "metrics"); out != "" || err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

func TestAlerts(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", "--lint-fatal", "alerts.yml"},
		{"test", "rules", "alerts_test.yml"},
	} {
		if out, err := promtool(t, "", args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Every alert fires in some test and is silent in another, every record is compared, and the rules
// ask only for what there is.
func TestRulesAreTested(t *testing.T) {
	rules, tests := read(t, "alerts.yml"), read(t, "alerts_test.yml")
	var records []string
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "- alert: "); ok {
			if !strings.Contains(tests, "alertname: "+name+"\n        exp_alerts:") {
				t.Errorf("%s fires in no test", name)
			}
			if !strings.Contains(tests, "alertname: "+name+" }") {
				t.Errorf("%s is silent in no test", name)
			}
		}
		if name, ok := strings.CutPrefix(line, "- record: "); ok {
			records = append(records, name)
			if !strings.Contains(tests, "expr: "+name+"\n") {
				t.Errorf("no test compares %s", name)
			}
		}
	}
	if what := offers().missing(rules, records); what != nil {
		t.Errorf("the rules ask for what there is not: %q", what)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

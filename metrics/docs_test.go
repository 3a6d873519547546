package metrics

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var help = regexp.MustCompile(`(?m)^# HELP (shaper_\w+) (.*)\n# TYPE \w+ (\w+)$`)

// exposition, by which docs/metrics.md and the dashboard are judged, has each metric that there is.
func TestExpositionIsComplete(t *testing.T) {
	all := exposition()
	for _, m := range regexp.MustCompile(`(?:desc|both)\("(\w+)"`).FindAllStringSubmatch(read(t, "descs.go"), -1) {
		if !strings.Contains(all, "\n# TYPE shaper_"+m[1]+" ") {
			t.Errorf("shaper_%s is missing", m[1])
		}
	}
}

// docs/metrics.md lists all metrics, and names each alert and record. The flag -update writes the list.
func TestDocument(t *testing.T) {
	const file, title = "../docs/metrics.md", "## All metrics\n\n"
	got := read(t, file)
	kept, _, _ := strings.Cut(got, title)
	want, all := "| metric | labels | what |\n|---|---|---|\n", offers()
	for _, m := range help.FindAllStringSubmatch(exposition(), -1) {
		name := m[1]
		if m[3] == "histogram" {
			name += "_count"
		}
		labels := strings.Join(slices.Sorted(maps.Keys(all[name])), ", ")
		want += fmt.Sprintf("| `%s` (%s) | %s | %s |\n", m[1], m[3], labels, strings.ReplaceAll(m[2], `\"`, `"`))
	}
	want = kept + title + want
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("the list in %s is not current; -update writes it", file)
	}
	for _, m := range regexp.MustCompile(`- (?:alert|record): (\S+)`).FindAllStringSubmatch(read(t, "alerts.yml"), -1) {
		if !strings.Contains(kept, "`"+m[1]+"`") {
			t.Errorf("%s does not name %s", file, m[1])
		}
	}
}

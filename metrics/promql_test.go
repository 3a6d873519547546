package metrics

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shaper/stats"
)

// offered is what /metrics offers: the values of each label of each metric.
type offered map[string]map[string]map[string]bool

var (
	seriesLine = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? [^ ]+$`)
	pair       = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	histograms = regexp.MustCompile(`(?m)^# TYPE (\w+) histogram$`)
	selector   = regexp.MustCompile(`\b((?:shaper|process|go)_\w+|\w+:\w+:\w+)(?:\{([^}]*)\})?`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
)

// exposition returns what /metrics offers if all features are in use, with classes of all units, in
// the kernel too.
func exposition() string {
	status := fixed()
	for _, unit := range []string{"bytes", "packets", "messages", "connections", "tokens"} {
		c := new(stats.Class).Read()
		c.Name, c.Rate.Unit, c.Ceil = unit, unit, &stats.RateReading{Unit: unit}
		status.Classes = append(status.Classes, c)
	}
	status.Kernel = status.Classes
	answer := httptest.NewRecorder()
	Handler(func() stats.Status { return status }).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

// offers returns what exposition has.
func offers() offered {
	text, all := exposition(), offered{}
	for _, m := range seriesLine.FindAllStringSubmatch(text, -1) {
		if all[m[1]] == nil {
			all[m[1]] = map[string]map[string]bool{}
		}
		for _, p := range pair.FindAllStringSubmatch(m[2], -1) {
			if all[m[1]][p[1]] == nil {
				all[m[1]][p[1]] = map[string]bool{}
			}
			all[m[1]][p[1]][p[3]] = true
		}
	}
	for _, m := range histograms.FindAllStringSubmatch(text, -1) {
		all[m[1]] = all[m[1]+"_count"] // as a native histogram
	}
	return all
}

// missing returns what PromQL asks for that there is not: metrics, labels, and values of labels. The
// values of names are up to the policy, and Prometheus adds the labels job and instance.
func (all offered) missing(promQL string, records []string) (what []string) {
	labels := map[string]bool{"job": true, "instance": true, "le": true}
	for _, m := range selector.FindAllStringSubmatch(promQL, -1) {
		name, has := m[1], all[m[1]]
		if has == nil && !slices.Contains(records, name) {
			what = append(what, name)
			continue
		}
		for label := range has {
			labels[label] = true
		}
		for _, p := range pair.FindAllStringSubmatch(m[2], -1) {
			if label := p[1]; label != "instance" && label != "job" && has != nil {
				what = append(what, missingValues(name, label, p[3], has[label])...)
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(promQL, -1) {
		for _, label := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ' ' || r == ',' }) {
			if !labels[label] && len(records) == 0 {
				what = append(what, "label "+label)
			}
		}
	}
	return what
}

// missingValues returns the alternatives of a matcher that no series has.
func missingValues(name, label, alternatives string, values map[string]bool) (what []string) {
	if values == nil {
		return []string{fmt.Sprintf("%s{%s}", name, label)}
	}
	for value := range strings.SplitSeq(alternatives, "|") {
		if value != "" && !strings.HasPrefix(value, "$") && !values[value] {
			what = append(what, fmt.Sprintf("%s{%s=%q}", name, label, value))
		}
	}
	return what
}

func TestMissing(t *testing.T) {
	all := offers()
	for promQL, want := range map[string]string{
		`rate(shaper_class_refused_total{reason=~"queue_full|max_wait",class="$class"}[5m])`: "",
		`sum by (class) (shaper_class_paused) and process_open_fds`:                          "",
		`shaper_class_wait_seconds or shaper_class_wait_seconds_bucket{le="1"}`:              "",
		`shaper_class_waits`:                                                      "shaper_class_waits",
		`shaper_class_paused{reason="x"}`:                                         "shaper_class_paused{reason}",
		`shaper_sessions_total{result=~"ok|oops"}`:                                `shaper_sessions_total{result="oops"}`,
		`sum by (class, clas) (shaper_class_paused)`:                              "label clas",
		`x on (fleet) group_left (size) shaper_fleet_up{}`:                        "label size",
		`rate(shaper_class_sent_bytes_total{engine="xdp"}[1m]) + process_open_fd`: `shaper_class_sent_bytes_total{engine="xdp"} process_open_fd`,
	} {
		if got := strings.Join(all.missing(promQL, nil), " "); got != want {
			t.Errorf("%s: missing %q, want %q", promQL, got, want)
		}
	}
}

// Where Prometheus has both forms of a histogram, the rules and the dashboard take the native one, which
// is finer.
func TestNativeHistogramsComeFirst(t *testing.T) {
	quantiles := regexp.MustCompile(`histogram_quantile\([^\[]*?(_bucket)?(?:\{[^}]*\})?\[`)
	for _, file := range []string{"alerts.yml", "grafana.json"} {
		all := quantiles.FindAllStringSubmatch(read(t, file), -1)
		if len(all) < 4 || len(all)%2 > 0 {
			t.Fatalf("%s has %d quantiles", file, len(all))
		}
		for i, m := range all {
			if isNative := m[1] == ""; isNative != (i%2 == 0) {
				t.Errorf("%s takes %q as operand %d", file, m[0], i%2)
			}
		}
	}
}

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestJain(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   float64
	}{
		{[]float64{5, 5, 5, 5}, 1},
		{[]float64{8, 0, 0, 0}, 0.25},
		{[]float64{3, 1}, 0.8},
	} {
		if got := jain(c.shares); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("jain(%v) = %v, want %v", c.shares, got, c.want)
		}
	}
	if got := jain([]float64{0, 0}); !math.IsNaN(got) {
		t.Errorf("jain of zeros = %v, want NaN", got)
	}
}

func TestPercentile(t *testing.T) {
	values := []float64{30, 10, 20, 40}
	for p, want := range map[float64]float64{0: 10, 25: 10, 26: 20, 50: 20, 99: 40, 100: 40} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %v = %v, want %v", p, got, want)
		}
	}
	if values[0] != 30 {
		t.Error("percentile changed its argument")
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{9, 1, 5, 6}, 5.5},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestWindows(t *testing.T) {
	values := []float64{2, 2, 2, 2, 6, 2, 2, 2}
	for set, want := range map[float64]float64{2: 4, 3.5: 2, 2.5: 4} {
		if got := worst(values, 2, set); got != want {
			t.Errorf("worst(set %v) = %v, want %v", set, got, want)
		}
	}
	if got := busiest(values, 3); got != 10./3 {
		t.Errorf("busiest = %v, want %v", got, 10./3)
	}
	if got := busiest([]float64{5, 1, 1}, 2); got != 3 {
		t.Errorf("busiest of values that begin with the highest = %v, want 3", got)
	}
}

func TestCalendar(t *testing.T) {
	var c arrivals
	began := time.UnixMilli(1_000_000)
	for _, ms := range []int{0, 1, 1, 4} {
		c.add(began.Add(time.Duration(ms)*time.Millisecond), 100)
	}
	got := c.between(began.Add(-time.Millisecond), began.Add(6*time.Millisecond))
	want := []float64{0, 100, 200, 0, 0, 100, 0}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("between = %v, want %v", got, want)
		}
	}
}

func TestGapValues(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	got := gapValues([]time.Time{at(0), at(10), at(20), at(29), at(40)}, 0.010)
	want := []float64{1, 4, 1, 0.9, 0, 1000}
	for i, v := range want {
		if math.Abs(got[i]-v) > 1e-9 {
			t.Errorf("value %d = %v, want %v", i, got[i], v)
		}
	}
}

// TestGrouped starts a command in a cgroup with a weight and a quota.
func TestGrouped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes cgroups")
	}
	launch, undo, err := grouped(1000, 20)()
	defer undo()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(launch[len(launch)-1])
	script := "cat /proc/self/cgroup; cat " + dir + "/cpu.weight " + dir + "/cpu.max || cat " + dir + "/cpu.shares " + dir + "/cpu.cfs_quota_us"
	out, _ := exec.Command(launch[0], append(launch[1:], "sh", "-c", script)...).Output()
	for _, want := range []string{"/shaper-bench\n", "20000"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the command does not see %q, but this:\n%s", want, out)
		}
	}
}

func TestSessionsWithin(t *testing.T) {
	for limit, want := range map[uint64]int{100: 0, 1024: 262, 20_000: 9750, 100_000: 10_000} {
		if got := sessionsWithin(limit); got != want {
			t.Errorf("sessionsWithin(%d) = %d, want %d", limit, got, want)
		}
	}
}

func TestConfigs(t *testing.T) {
	requests, submits := setting{protocol: "http", number: 100}, setting{protocol: "smpp", number: 100}
	bulk, paced, counted := setting{}, setting{rate: 125_000}, setting{protocol: "udp", number: 100}
	for _, c := range []struct {
		way     way
		setting setting
		want    []string
	}{
		{shaper, bulk, []string{`rate = "160000000000bit"`, `protocol = "tcp"`, `upstream = "127.0.0.1:6000"`}},
		{shaper, paced, []string{`rate = "1000000bit"`}},
		{shaperSOCKS, bulk, []string{`mode     = "socks5"`, `allow    = "127.0.0.1:6000"`}},
		{shaper, counted, []string{`rate = "100 packets/s"`, `protocol = "udp"`}},
		{haproxy, bulk, []string{"default-limit 2000000000 default-period 100ms", "bind 127.0.0.1:5000"}},
		{haproxy, paced, []string{"default-limit 125000 default-period 1s"}},
		{haproxy64, bulk, []string{"tune.bufsize 65536", "bwlim-in"}},
		{shaper, requests, []string{`rate = "100 messages/s"`, `protocol = "http"`}},
		{haproxyTable, paced, []string{"store bytes_in_rate(1s)", "bwlim-in work limit 125000 key src\n", "set-bandwidth-limit work"}},
		{haproxyFree, bulk, []string{"splice-auto", "tune.pipesize"}},
		{nginx, paced, []string{"proxy_upload_rate 125000;", "listen 127.0.0.1:5000;"}},
		{nginx256, bulk, []string{"proxy_buffer_size 256k;", "proxy_upload_rate 20000000000;"}},
		{nginxHalf, bulk, []string{"proxy_half_close on;"}},
		{nginx, counted, []string{"listen 127.0.0.1:5000 udp"}},
		{nginx, requests, []string{"rate=100r/s;", "limit_req zone=work burst=1000;", "listen 127.0.0.1:5000;"}},
		{kannel, submits, []string{"throughput = 100\n", "sendsms-port = 5000\n", "port = 6000\n"}},
	} {
		got := c.way.config(c.setting, "/dir", "/root")
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s %+v: no %q in\n%s", c.way.name, c.setting, want, got)
			}
		}
	}
	if strings.Contains(haproxyFree.config(bulk, "", ""), "bwlim") {
		t.Error("the way without a limit has bwlim")
	}
}

func TestChoose(t *testing.T) {
	for list, want := range map[string]string{
		"bulk1,rtt": "bulk1 rtt",
		"bulk":      "bulk1 bulk64",
		"udp64":     "udp64",
		"":          strings.Join(names(), " "),
	} {
		chosen, err := choose(list, "")
		var got []string
		for _, k := range chosen {
			got = append(got, k.name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("choose(%q) = %v, %v", list, got, err)
		}
	}
	if _, err := choose("bulk,rat", ""); err == nil || !strings.Contains(err.Error(), `"rat"`) {
		t.Errorf("choose of an unknown kind: error %v, want one that names it", err)
	}
	chosen, err := choose("bulk,gap10", "haproxy,direct")
	if err != nil || len(chosen) != 2 || len(chosen[0].ways) != 5 || chosen[0].ways[1].name != "haproxy" {
		t.Errorf("choose with ways = %v, %v", chosen, err)
	}
	for peer, want := range map[string]bool{"haproxy": true, "direct": true, "nginx": false, "kannel": false, "shaper": false} {
		if goesBy(chosen, peer) != want {
			t.Errorf("whether work goes by %s: %v", peer, !want)
		}
	}
	if _, err := choose("gap10", "nginx"); err == nil {
		t.Error("choose accepts a kind and a way that leave nothing to measure")
	}
}

// Each kind of work has all that the report needs.
func TestKinds(t *testing.T) {
	for _, k := range kinds() {
		plotted := 0
		for _, c := range k.columns {
			if c.plotted {
				plotted++
			}
		}
		if plotted != 1 || groups[k.group].about == "" || k.label == "" || k.measure == nil {
			t.Errorf("%s: %d plotted columns, want 1; or its label, measure function or group text is missing", k.name, plotted)
		}
	}
}

func sample() []result {
	k := kind{
		name: "bulk1", group: "bulk", label: "1 connection", ways: []way{direct, nginx, haproxy, shaper},
		columns: []column{
			{name: "Gbit/s", format: "%.1f", ratio: true, plotted: true},
			{name: "CPU s/GB", format: "%.3f", lower: true},
		},
	}
	return []result{{kind: k, rows: []row{
		{way: direct, rounds: [][]float64{{80, nan}, {60, nan}, {70, nan}}},
		{way: nginx, rounds: [][]float64{{10, 0.3}, {20, 0.1}, {30, 0.2}}},
		{way: haproxy, failed: errors.New("no compiler\nfor | it")},
		{way: shaper, rounds: [][]float64{{40, 0.2}, {40, 0.2}, {45, 0.2}}},
	}}}
}

func TestTables(t *testing.T) {
	got := tables(sample())
	for _, want := range []string{
		"\n## Bulk\n",
		"| work | way | Gbit/s | shaper ÷ this | CPU s/GB |\n|---|---|--:|--:|--:|\n",
		"| 1 connection | direct | 70.0 | 0.64 | – |\n",
		"| 1 connection | nginx | 20.0 | 2.00 | 0.200 |\n", // the median of 4, 2 and 1.5
		"| 1 connection | haproxy | not measured: no compiler for / it |\n",
		"| 1 connection | shaper | 40.0 |  | 0.200 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestTablesWithoutShaper(t *testing.T) {
	results := sample()
	results[0].rows[3].failed = errors.New("it ended")
	if got := tables(results); !strings.Contains(got, "| nginx | 20.0 |  | 0.200 |") {
		t.Errorf("without a row of shaper there is a ratio:\n%s", got)
	}
}

func TestPlot(t *testing.T) {
	got := plot(sample())
	for d := xml.NewDecoder(strings.NewReader(got)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, got)
		}
	}
	for _, want := range []string{"Bulk, 1 connection: Gbit/s (more is better)", ">nginx<", ">shaper<", ">40.0<"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for _, unwanted := range []string{">direct<", ">haproxy<"} {
		if strings.Contains(got, unwanted) {
			t.Errorf("the plot has %q, which needs no bar", unwanted)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		format string
		value  float64
		want   string
	}{
		{"%.0f", 999, "999"},
		{"%.0f", 1000, "1,000"},
		{"%.1f", 1234567.8, "1,234,567.8"},
		{"%.0f %%", 97, "97 %"},
		{"%.1f", nan, "–"},
	} {
		if got := number(c.format, c.value); got != c.want {
			t.Errorf("number(%q, %v) = %q, want %q", c.format, c.value, got, c.want)
		}
	}
}

func TestVersions(t *testing.T) {
	if got := version(tool{Missing: "a|b\nc"}); got != "not measured (a/b c)" {
		t.Error(got)
	}
}

package metrics

import (
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"shaper/stats"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/exposition.txt")

// fixed returns a status in which all figures differ.
func fixed() stats.Status {
	var acme stats.Class
	acme.Sent[stats.Upstream].Bytes.Add(1500)
	acme.Sent[stats.Upstream].Packets.Add(2)
	acme.Sent[stats.Downstream].Bytes.Add(300)
	acme.Sent[stats.Upstream].Connections.Add(3)
	acme.Dropped[stats.QueueFull].Add(70)
	acme.Dropped[stats.Reset].Add(71)
	acme.Refused[stats.MaxWait].Add(72)
	acme.Overlimits.Add(4)
	acme.KeysShared.Add(11)
	for _, d := range []time.Duration{0, time.Millisecond, time.Second, time.Second + 1, time.Hour} {
		acme.Wait.Observe(d)
	}
	var would stats.Class
	would.Overlimits.Add(13)
	would.Dropped[stats.QueueFull].Add(60)
	would.Dropped[stats.MaxWait].Add(60)
	would.Wait.Observe(time.Minute)
	acme.Sent[stats.Upstream].Messages.Add(14)
	acme.Sent[stats.Upstream].Requests.Add(12)
	class, shadow := acme.Read(), would.ReadShadow()
	class.Shadow = &shadow
	class.Per, class.Keys, class.MaxKeys = "source", 12, 65536
	class.Quotas = []stats.QuotaReading{
		{Window: "1h", Size: 20, Remaining: 18, Resets: time.Unix(1_700_000_100, 500_000_000)},
		{Window: "1m", Size: 10, Remaining: 9}, // it slides
	}
	class.BacklogBytes, class.BacklogItems, class.Oldest = 80, 5, stats.Seconds(17*time.Hour)
	class.WaitsFor = &stats.Hold{Class: "acme", Limit: "20 packets/h", Until: time.Unix(1_700_000_200, 0)}
	class.Name, class.Rate = "acme", stats.RateReading{Text: "30 packets/min", PerSecond: 0.5, Unit: "packets"}

	messages := idleMessages()
	messages.InFlight, messages.Share, messages.PausedUntil = 15, 0.5, time.Unix(1_700_000_000, 0)
	messages.Throttled = map[string]uint64{"0x58": 16}
	messages.Retries = map[stats.Retry]uint64{{Outcome: stats.RetryLast, Signal: "0x58"}: 20}
	messages.Learned = 21

	tokens := idleTokens()
	tokens.Sent[stats.Upstream] = stats.VolumeReading{Messages: 22, Tokens: 23}
	tokens.Hinted = map[string]uint64{stats.HintTaken: 24}

	var web stats.Listener
	web.Open.Add(6)
	web.Ended[stats.OK].Add(7)
	web.Ended[stats.DialFailed].Add(8)
	web.AcceptErrors.Add(9)
	web.Sent[stats.Downstream].Bytes.Add(17)
	web.SpliceRefused.Add(10)
	web.Failed.Add("gw.example:80", stats.NoAnswer)
	listener := web.Read()
	listener.Unframed = map[string]uint64{"too_long": 25}
	listener.Stray = map[string]uint64{stats.StrayHeader: 27}
	listener.UpstreamFailures = web.Failed.Read([]string{"gw.example:80"})
	listener.Upstreams = []stats.UpstreamReading{
		{Upstream: "gw.example:80", State: "up", Sessions: 18}, {Upstream: "gw.example:80", State: "down", Sessions: 1}, {Upstream: "other.example:80", State: "unresolved"},
	}
	listener.Name, listener.Addresses = "web", []string{"192.0.2.1:80"}

	var late stats.Histogram
	for _, micros := range []time.Duration{0, 3, 40} {
		late.Observe(micros * time.Microsecond)
	}

	return stats.Status{
		Version:    "1.2.3",
		Pacers:     stats.ReadPacers(late.Read()),
		PolicyHash: "0f3a",
		Budgets:    stats.StateReading{Path: "/var/lib/shaper/state", Written: time.Unix(1_700_000_001, 0), Failures: 17},
		Fleets: []stats.FleetReading{{
			Name: "prod", Up: true, Members: 3, Calls: 100, Failures: 4, CallTime: 2_000_000, ClockError: 300_000, Headroom: 1_000_000,
			Classes: []stats.SharedReading{
				{Class: "acme", Used: 70, Expired: 3, Returned: 2, Fallback: 5_000_000_000},
				{Class: "acme", Used: 71, Fallback: 6_000_000_000}, // a further limit
				{Class: "sms", Used: 10},
			},
		}},
		Reload:    stats.ReloadReading{OK: true, Succeeded: time.Unix(1_700_000_000, 5e8)},
		Kept:      &stats.KeptReading{Corrected: 26},
		Classes:   []stats.ClassReading{class, messages, tokens},
		Listeners: []stats.ListenerReading{listener},
	}
}

// idleMessages returns a class that counts messages and has seen none.
func idleMessages() stats.ClassReading {
	c := new(stats.Class).Read()
	c.Name, c.Parent, c.Retry = "sms", "acme", 3
	c.Rate, c.Share = stats.RateReading{Text: "20 messages/s", PerSecond: 20, Unit: "messages"}, 1
	c.Ceil = &stats.RateReading{Text: "30 messages/s", PerSecond: 30, Unit: "messages"}
	c.Learned = 30
	return c
}

// idleTokens returns a class that counts tokens and has seen none.
func idleTokens() stats.ClassReading {
	c := new(stats.Class).Read()
	c.Name, c.Share, c.Rate = "llm", 1, stats.RateReading{Text: "100 tokens/s", PerSecond: 100, Unit: "tokens"}
	return c
}

// scrape returns the metrics of shaper in text form, without those of Go and the process.
func scrape(t *testing.T, source func() stats.Status) string {
	t.Helper()
	answer := httptest.NewRecorder()
	Handler(source).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	var ours strings.Builder
	for line := range strings.Lines(answer.Body.String()) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(name, "shaper_") {
			ours.WriteString(line)
		}
	}
	return ours.String()
}

func TestExposition(t *testing.T) {
	const file = "testdata/exposition.txt"
	got := strings.ReplaceAll(scrape(t, fixed), runtime.Version(), "GOVERSION")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("against %s (-update rewrites it):\n%s", file, diff)
	}
}

// The policy fixes the series: traffic changes their values and never their number.
func TestCardinalityIsConstant(t *testing.T) {
	idle := fixed()
	idle.Classes[0] = new(stats.Class).Read()
	idle.Classes[0].Name, idle.Classes[0].Rate, idle.Classes[0].Per = fixed().Classes[0].Name, fixed().Classes[0].Rate, "source"
	idle.Classes[0].Quotas = []stats.QuotaReading{ // those of its policy
		{Window: "1h", Size: 20, Remaining: 20, Resets: time.Unix(1_700_000_000, 0)}, {Window: "1m", Size: 10, Remaining: 10},
	}
	shadow := new(stats.Class).ReadShadow()
	idle.Classes[0].Shadow = &shadow
	idle.Classes[1], idle.Classes[2] = idleMessages(), idleTokens()
	idle.Listeners[0] = new(stats.Listener).Read()
	idle.Listeners[0].Name, idle.Listeners[0].Unframed = "web", map[string]uint64{"too_long": 0}
	idle.Listeners[0].Stray = map[string]uint64{stats.StrayHeader: 0}
	idle.Listeners[0].Upstreams = []stats.UpstreamReading{{Upstream: "gw.example:80"}, {Upstream: "other.example:80"}}
	idle.Listeners[0].UpstreamFailures = new(stats.Upstreams).Read([]string{"gw.example:80"})
	if got, want := series(scrape(t, func() stats.Status { return idle })), series(scrape(t, fixed)); !cmp.Equal(got, want) {
		t.Errorf("the series of an idle and a busy status differ:\n%s", cmp.Diff(got, want))
	}
}

// The kernel's class has the series of the proxy's class and one more label. What only the proxy
// knows has none of the kernel.
func TestKernelClasses(t *testing.T) {
	status := fixed()
	status.Kernel = status.Classes
	proxy, kernel := map[string]int{}, map[string]int{}
	for line := range strings.Lines(scrape(t, func() stats.Status { return status })) {
		name, _, _ := strings.Cut(line, "{")
		if strings.Contains(line, `engine="tc"`) {
			kernel[name]++
		} else {
			proxy[name]++
		}
	}
	for _, name := range []string{"shaper_class_sent_bytes_total", "shaper_class_dropped_total", "shaper_class_backlog_items", "shaper_class_rate", "shaper_class_ceil"} {
		if kernel[name] == 0 {
			t.Errorf("the kernel has no %s", name)
		}
	}
	for name, n := range kernel {
		if n != proxy[name] {
			t.Errorf("%s has %d series of the kernel, %d of the proxy", name, n, proxy[name])
		}
	}
	if n := kernel["shaper_class_wait_seconds_count"]; n > 0 {
		t.Errorf("the kernel has %d counts of waits", n)
	}
}

// Every label engine="..." in the documents is in the series.
func TestEnginesInDocuments(t *testing.T) {
	status := fixed()
	status.Kernel = status.Classes
	text := scrape(t, func() stats.Status { return status })
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%v, %v", pages, err)
	}
	named := 0
	for _, page := range pages {
		shown, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("engine=\"(\\w*)\"").FindAllStringSubmatch(string(shown), -1) {
			named++
			if label := m[0]; m[1] != "" && !strings.Contains(text, label) { // "" selects series without the label
				t.Errorf("%s says %s, which no series has", page, label)
			}
		}
	}
	if named < 2 || strings.Contains(string(text), `engine=""`) {
		t.Errorf("engine is named %d times", named)
	}
}

// A window that slides never resets, so no alert waits for that.
func TestQuotaThatSlidesNeverResets(t *testing.T) {
	text := scrape(t, fixed)
	if series := `shaper_class_quota_remaining{class="acme",window="1m"}`; !strings.Contains(text, series) {
		t.Errorf("no %s", series)
	}
	if series := `shaper_class_quota_resets_timestamp_seconds{class="acme",window="1m"}`; strings.Contains(text, series) {
		t.Errorf("there is %s", series)
	}
}

func TestNoAddressInLabels(t *testing.T) {
	if text := scrape(t, fixed); strings.Contains(text, "192.0.2.1") {
		t.Errorf("there is an address in\n%s", text)
	}
}

func TestFailedReload(t *testing.T) {
	status := fixed()
	status.Reload.OK, status.Reload.Error = false, "shaper.toml:1:1: no"
	text := scrape(t, func() stats.Status { return status })
	for _, want := range []string{
		"shaper_config_last_reload_successful 0\n",
		"shaper_config_last_reload_success_timestamp_seconds 1.7000000005e+09\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A scrape calls the source once. Nothing calls it before.
func TestReadsAtScrapeOnly(t *testing.T) {
	reads := 0
	handler := Handler(func() stats.Status { reads++; return fixed() })
	if reads != 0 {
		t.Errorf("%d reads before the first scrape", reads)
	}
	for want := 1; want <= 2; want++ {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
		if reads != want {
			t.Errorf("%d reads for %d scrapes", reads, want)
		}
	}
}

func TestRuntimeMetrics(t *testing.T) {
	answer := httptest.NewRecorder()
	Handler(fixed).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{"\ngo_goroutines ", "\nprocess_open_fds "} {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}

// series returns the names and labels of an exposition.
func series(text string) (names []string) {
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, "} "); ok && line[0] != '#' {
			names = append(names, name)
		}
	}
	return names
}

package top

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shaper/daemon"
	"shaper/stats"
	"shaper/web"
)

var update = flag.Bool("update", false, "write the golden frames")

func TestMain(m *testing.M) {
	time.Local = time.UTC
	goleak.VerifyTestMain(m)
}

// noon is when the frames of tests are drawn.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// golden compares a frame with a file of testdata.
func golden(t *testing.T, name string, f frame) {
	t.Helper()
	var lines []string
	for _, l := range f {
		lines = append(lines, strings.TrimRight(l.String(), " "))
	}
	got, path := strings.Join(lines, "\n")+"\n", filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// seconds returns a number of seconds as a figure.
func seconds(s float64) stats.Seconds { return stats.Seconds(s * float64(time.Second)) }

// classes are those of the tests: one in which messages wait for an hour, one that the provider
// pauses, one with a long name.
func classes() []web.Class {
	return []web.Class{
		{Name: "aggregator", Rate: "20 messages/s", Now: "18.2 messages/s", Load: 0.91, Items: 52, Bytes: 4200, Oldest: seconds(63000), P50: seconds(0.3), P99: seconds(1.5), Drain: seconds(176400)},
		{Name: "bulk", Parent: "aggregator", Rate: "1 messages/h", Now: "0 messages/s", Items: 49, Bytes: 3920, Oldest: seconds(63000), Drain: seconds(176400), Refused: 3,
			WaitsFor: &stats.Hold{Class: "bulk", Limit: "1 messages/h", Until: noon.Add(59*time.Minute + 12*time.Second)}},
		{Name: "otp", Parent: "aggregator", Rate: "10 messages/s", Ceil: "20 messages/s", Set: true, Now: "9.98 messages/s", Load: 0.499, Items: 3, Bytes: 280, Oldest: seconds(0.28),
			P50: seconds(0.3), P99: seconds(1.5), Drain: seconds(0.3), Throttled: 7, PausedUntil: noon.Add(4200 * time.Millisecond),
			WaitsFor: &stats.Hold{Class: "aggregator", Limit: "20 messages/s", Until: noon.Add(40 * time.Millisecond)}},
		{Name: "partner-of-the-north-with-a-long-name", Rate: "1mbit", Now: "998kbit", Load: 0.998, Items: 1, Bytes: 1500, Oldest: seconds(0.009), P50: seconds(0.01), P99: seconds(0.02), Drain: seconds(0.012), Dropped: 12345},
		{Name: "stopped", Rate: "0bit", Now: "0bit", Items: 2, Bytes: 99, Oldest: seconds(30), Drain: stats.Never},
	}
}

// shown returns a model that has seen the classes.
func shown(width, height int, all ...web.Class) *model {
	m := &model{facts: func(c daemon.Class, _ time.Time) [][2]string {
		return [][2]string{{"rate", c.Rate.Text}, {"now", c.Now.Text}, {"items", "49"}, {"also", "5000 messages/day from 00:00 in Europe/Paris, and then nothing more"}, {"sessions", "1"}}
	}}
	m.resize(width, height)
	m.showTree(daemon.Event[daemon.Tree]{Now: noon, Summary: summary, View: daemon.Tree{Total: len(all), Classes: all}})
	return m
}

var summary = daemon.Summary{Version: "1.2.3", State: "running", Started: noon.Add(-time.Hour), PolicyHash: "3f2a91c0d4e5", ReloadOK: true, Sessions: 12}

// bulkPage is an event of the page of bulk: for half an hour it has sent and then filled up.
func bulkPage() (e daemon.Event[daemon.ClassView]) {
	c := &daemon.Class{}
	c.Name, c.BacklogItems = "bulk", 49
	c.Rate = stats.RateReading{Text: "10 messages/s", PerSecond: 10, Unit: "messages"}
	c.Now = stats.RateReading{Text: "2.00 messages/s", PerSecond: 2, Unit: "messages"}
	e.Now, e.Summary = noon, summary
	e.View = daemon.ClassView{Class: c, Why: "class bulk: waiting items: 49; the next leaves at 2026-03-04 12:59:12.000\n" +
		"  class bulk: the limit of 1 messages/h, until 2026-03-04 12:59:12.000\n  class aggregator: nothing holds it up\n"}
	curves := &e.View.Curves
	for i := range 180 {
		curves.Times = append(curves.Times, noon.Add(time.Duration(i-180)*10*time.Second).Unix())
		curves.Sent = append(curves.Sent, 0)
		curves.Waiting = append(curves.Waiting, 0)
		curves.Lost = append(curves.Lost, 0)
		curves.Sent[i] += 8
		if i > 90 {
			curves.Sent[i], curves.Waiting[i] = 2, curves.Waiting[i-1]+0.5
		}
	}
	return e
}

// pressAll presses keys: characters, or those with names.
func (m *model) pressAll(keys ...any) {
	for _, k := range keys {
		switch k := k.(type) {
		case string:
			for _, r := range k {
				m.press(key(r))
			}
		case key:
			m.press(k)
		}
	}
}

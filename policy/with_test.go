package policy

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shaper/calendar"
)

func TestWith(t *testing.T) {
	p := mustParse(t, before)
	changed, _, err := p.With("acme", map[string]string{"rate": "60 packets/s", "algorithm": "token", "burst": "5 packets"})
	if err != nil {
		t.Fatal(err)
	}
	want := `
~ class acme: algorithm leaky -> token
~ class acme: rate 30 packets/s -> 60 packets/s
~ class acme: burst one quantum -> 5 packets
`
	if diff := cmp.Diff(want, diffLines(p, changed)); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	if c, _ := p.Class("acme"); c.Rate != rate("30 packets/s") {
		t.Error("the policy itself has changed")
	}
}

func TestWithRefuses(t *testing.T) {
	p := mustParse(t, before)
	for _, tt := range []struct {
		class  string
		values map[string]string
		want   string
	}{
		{"acne", map[string]string{"rate": "1mbit"}, `class.acne: there is no class "acne"; did you mean "acme"?`},
		{"acme", map[string]string{"rate": "60"}, `class.acme.rate: "60" is not a rate: it has no unit; a rate is like "20mbit", "64KiB/s", "200 packets/s" or "120 connections/min"`},
		{"acme", map[string]string{"rat": "60"}, `class.acme.rat: unknown key; did you mean "rate"?`},
		{"acme", map[string]string{"ceil": "60 packets/s"}, `class.acme.ceil: the class has no parent, so it shares with nobody; name a parent, or leave it out`},
		{"acme", map[string]string{"parent": "old"}, `class.acme.parent: a live class stays where it is; change it in the policy file, and reload`},
		{"acme", map[string]string{"burst": "5 packets"}, `class.acme.burst: leaky has no burst; leave it out, or set algorithm = "token" or "gcra"`},
		{"acme", map[string]string{"algorithm": "fixed-window", "window": "50ms"}, `class.acme.window: "50ms" at the rate "30 packets/s" does not hold a whole number of packets; a multiple of "100ms"`},
		{"acme", map[string]string{"algorithm": "fixed-window", "rate": "0.5 packets/s"}, `class.acme.rate: "0.5 packets/s" is not a whole number of packets in a window of 1s; add a window that is a multiple of "2s"`},
		{"acme", map[string]string{"also": "5 packets/min"}, `class.acme.also: a list cannot be set; change it in the policy file, and reload`},
		{"acme", map[string]string{"settle": `{ json = "usage.total_tokens" }`}, `class.acme.settle: a table cannot be set; change it in the policy file, and reload`},
		{"acme", map[string]string{"throttled_by": "true"}, `class.acme.throttled_by: a table cannot be set; change it in the policy file, and reload`},
		{"acme", map[string]string{"on_throttle": `{ pause = "1s" }`}, `class.acme.on_throttle: a table cannot be set; change it in the policy file, and reload`},
		{"acme", map[string]string{"cost": `{ bytes = 4 }`}, `class.acme.cost: a table cannot be set; change it in the policy file, and reload`},
		{"acme", map[string]string{"zone": "Europe/Paris"}, `class.acme.zone: "30 packets/s" is of no calendar; leave it out, or a rate for each day, week or month`},
		{"acme", map[string]string{"in_flight": "5"}, `class.acme.in_flight: the class counts packets, and only messages are answered; leave it out, or set a rate in messages`},
		{"acme", map[string]string{"adapt": "true"}, `class.acme.adapt: the class counts packets, and only messages are answered; leave it out, or set a rate in messages`},
		{"acme", map[string]string{"shadow": "1"}, `class.acme.shadow: "1" is neither; true or false`},
		{"acme", map[string]string{"max_keys": "5"}, `class.acme.max_keys: the class has one bucket for all; add per = "source", for example, or leave it out`},
		{"acme", map[string]string{"overflow": "wait"}, `class.acme.overflow: "wait" cannot be used for the datagrams of a udp listener; "drop"`},
		{"acme", map[string]string{"rate": "5 connections/s"}, `class.acme.rate: the class counts packets, not connections; set a rate of the same unit; the policy file can change the unit`},
		{"acme", map[string]string{"queue": "0B", "headroom": "x"}, `class.acme.headroom: "x" is not a share: it does not begin with a number; a share is like "3%", from 0% to below 100%` + "\n" +
			`class.acme.queue: "0B" holds nothing; a queue is bounded by a size like "64KiB" or a count like "500 packets"`},
	} {
		_, _, err := p.With(tt.class, tt.values)
		var es Errors
		if !errors.As(err, &es) || err.Error() != tt.want {
			t.Errorf("%s %v:\ngot  %v\nwant %s", tt.class, tt.values, err, tt.want)
		}
	}
}

// A set of a rate of another period would close a class that names no window for a whole one, and again when the
// set ends. So it has to name the window.
func TestWithKeepsTheWindow(t *testing.T) {
	const class = "algorithm = \"fixed-window\"\nrate = \"200000 messages/day\""
	for _, tt := range []struct {
		class  string
		values map[string]string
		want   string
	}{
		{class, map[string]string{"rate": "5000 messages/h"}, `class.a.rate: "5000 messages/h" counts in windows of 1h, and "200000 messages/day" in windows of 24h: ` +
			`each change would close the class for a whole window; set window=24h too, or a rate for each 24h`},
		{class, map[string]string{"rate": "0 messages/s"}, `class.a.rate: "0 messages/s" counts in windows of 1s, and "200000 messages/day" in windows of 24h: ` +
			`each change would close the class for a whole window; set window=24h too, or a rate for each 24h`},
		{class, map[string]string{"rate": "5000 messages/h", "window": "24h"}, ""},
		{class, map[string]string{"rate": "5000 messages/h", "window": "1h"}, ""}, // it names what it wants
		{class, map[string]string{"rate": "5000 messages/h", "algorithm": "leaky"}, ""},
		{class, map[string]string{"rate": "0 messages/day"}, ""},
		{class + "\nzone = \"Europe/Paris\"", map[string]string{"rate": "5000 messages/h"}, ""},
		{"rate = \"20 messages/s\"", map[string]string{"rate": "60 messages/min"}, ""},
		{"algorithm = \"fixed-window\"\nrate = \"0 messages/s\"\nat = [{ to = \"06:00\", rate = \"9 messages/h\" }]", map[string]string{"rate": "5 messages/h"}, ""},
		{class + "\nparent = \"b\"\nceil = \"300000 messages/day\"\n[class.b]\nrate = \"20 messages/s\"", map[string]string{"ceil": "10000 messages/h"},
			`class.a.ceil: "10000 messages/h" counts in windows of 1h, and "300000 messages/day" in windows of 24h: ` +
				`each change would close the class for a whole window; set window=24h too, or a rate for each 24h`},
	} {
		p, _, err := parseClass(tt.class)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if _, _, err := p.With("a", tt.values); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%v:\ngot  %s\nwant %s", tt.values, got, tt.want)
		}
	}
}

// A set of a zone or of a reset makes the class count by the calendar, as in the file: in the period of its rate.
func TestWithSetsTheZone(t *testing.T) {
	p, _, err := parseClass("algorithm = \"fixed-window\"\nrate = \"1000 messages/day\"")
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range []map[string]string{{"zone": "Europe/Paris"}, {"reset": "00:00"}, {"rate": "30000 messages/month", "zone": "UTC"}} {
		changed, _, err := p.With("a", values)
		if err != nil {
			t.Errorf("%v: %v", values, err)
			continue
		}
		if c, _ := changed.Class("a"); c.Window.Period != calendar.PeriodOf(c.Rate.Period()) {
			t.Errorf("%v: the window is %v", values, c.Window)
		}
	}
}

// A set may not contradict the learn of the file. It may lower the rate to the floor or to 0: then the class does not learn.
func TestWithBesideLearn(t *testing.T) {
	p, _, err := parseClass("rate = \"20 messages/s\"\nlearn = { floor = \"5 messages/s\" }")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		values map[string]string
		want   string
	}{
		{map[string]string{"adapt": "true"}, `class.a.learn: adapt is another answer to the same refusals: one would undo what the other does; leave adapt out, or learn`},
		{map[string]string{"adapt": "false"}, ""},
		{map[string]string{"algorithm": "fixed-window", "window": "100ms"}, `class.a.learn.floor: "5 messages/s" is less than one message in a window of 100ms; a higher floor`},
		{map[string]string{"rate": "10 messages/s"}, ""},
		{map[string]string{"rate": "5 messages/s"}, ""},
		{map[string]string{"rate": "0 messages/s"}, ""},
	} {
		got := ""
		if _, _, err := p.With("a", tt.values); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%v:\ngot  %s\nwant %s", tt.values, got, tt.want)
		}
	}
}

// A rate of 0 does not stop a class that borrows up to its ceil, and whoever sets it learns that.
func TestWithWarnsOfWhatDoesNotStop(t *testing.T) {
	p, _, err := parseClass("parent = \"b\"\nrate = \"5 messages/s\"\nceil = \"20 messages/s\"\n[class.b]\nrate = \"20 messages/s\"")
	if err != nil {
		t.Fatal(err)
	}
	const warning = `class.a.rate: "0 messages/s" stops nothing: the class still borrows up to its ceil "20 messages/s"; ceil = "0 messages/s" too, if nothing is to leave`
	for _, tt := range []struct {
		values map[string]string
		want   string
	}{
		{map[string]string{"rate": "0 messages/s"}, warning},
		{map[string]string{"rate": "0 messages/s", "ceil": "0 messages/s"}, ""},
		{map[string]string{"rate": "0 messages/s", "ceil": "9 messages/s"}, ""}, // it says so itself
		{map[string]string{"rate": "1 messages/s"}, ""},
	} {
		if _, warnings, err := p.With("a", tt.values); err != nil || warnings.Error() != tt.want {
			t.Errorf("%v: %v\ngot  %v\nwant %s", tt.values, err, warnings, tt.want)
		}
	}
}

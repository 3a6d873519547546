package policy

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/calendar"
	"shaper/unit"
)

func scheduled(t *testing.T) Class {
	t.Helper()
	p, warnings, err := Load("testdata/good/schedule.toml")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	c, _ := p.Class("account")
	return c
}

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The last section that matches holds, by the clock of its zone. A time in which nothing may leave
// is known before it begins, and with its end.
func TestScheduled(t *testing.T) {
	c := scheduled(t)
	for _, tt := range []struct{ at, rate, until, from, opens string }{
		{"2026-11-23T12:00:00Z", "20 messages/s", "2026-11-23T20:00:00Z", "2026-11-23T20:00:00Z", "2026-11-24T08:00:00Z"}, // Monday
		{"2026-11-23T19:59:59Z", "20 messages/s", "2026-11-23T20:00:00Z", "2026-11-23T20:00:00Z", "2026-11-24T08:00:00Z"},
		{"2026-11-23T20:00:00Z", "0 messages/s", "2026-11-24T08:00:00Z", "", "2026-11-24T08:00:00Z"},
		{"2026-11-24T07:59:59Z", "0 messages/s", "2026-11-24T08:00:00Z", "", "2026-11-24T08:00:00Z"},
		{"2026-11-24T08:00:00Z", "20 messages/s", "2026-11-24T20:00:00Z", "2026-11-24T20:00:00Z", "2026-11-25T08:00:00Z"},
		{"2026-11-27T23:30:00Z", "0 messages/s", "2026-11-28T08:00:00Z", "", "2026-11-28T08:00:00Z"}, // the night to Saturday
		{"2026-11-28T12:00:00Z", "5 messages/s", "2026-11-28T20:00:00Z", "2026-11-28T20:00:00Z", "2026-11-29T08:00:00Z"},
		{"2026-03-28T21:00:00Z", "0 messages/s", "2026-03-29T07:00:00Z", "", "2026-03-29T07:00:00Z"}, // summer time begins: an hour less
		{"2026-10-24T21:00:00Z", "0 messages/s", "2026-10-25T08:00:00Z", "", "2026-10-25T08:00:00Z"}, // and ends: an hour more
	} {
		now, until := c.Scheduled(moment(t, tt.at))
		if got := c.LimitAt(moment(t, tt.at)).String(); got != tt.rate {
			t.Errorf("at %s the rate is %s, want %s", tt.at, got, tt.rate)
		}
		if !until.Equal(moment(t, tt.until)) || !now.Closed.From.Equal(moment(t, tt.from)) || !now.Closed.Until.Equal(moment(t, tt.opens)) {
			t.Errorf("at %s: until %v, closed from %v to %v; want %s, %s, %s", tt.at, until, now.Closed.From, now.Closed.Until, tt.until, tt.from, tt.opens)
		}
		if got := now.Shown(moment(t, tt.at)).Limit().String(); got != tt.rate {
			t.Errorf("at %s it is shown with %s, want %s", tt.at, got, tt.rate)
		}
		if now.Limit().IsZero() {
			t.Errorf("at %s the class that is closed for a time has a limit of 0 for ever", tt.at)
		}
	}
}

// What holds at each minute is what the sections say, and until each change nothing changes.
func TestScheduledIsWhatTheSectionsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Class{Name: "a", Rate: rate("20 messages/s")}
		for range rapid.IntRange(1, 4).Draw(t, "sections") {
			z, _ := calendar.ParseZone(rapid.SampledFrom([]string{"UTC", "Europe/Paris", "Asia/Kolkata", "America/Los_Angeles"}).Draw(t, "zone"))
			a := At{Hours: Hours{Zone: z, From: calendar.Clock(rapid.IntRange(0, 23).Draw(t, "from") * 60), To: calendar.Clock(rapid.IntRange(0, 24).Draw(t, "to") * 60)},
				Rate: unit.NewRate(unit.Messages, rapid.Int64Range(0, 3).Draw(t, "rate"), time.Second)}
			for _, d := range days {
				if rapid.Bool().Draw(t, string(d)) {
					a.Days = append(a.Days, d)
				}
			}
			if a.From != a.To {
				c.At = append(c.At, a)
			}
		}
		now := time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 20*24*60).Draw(t, "minute")) * time.Minute)
		said := func(at time.Time) unit.Rate {
			r := c.Rate
			for _, a := range c.At {
				local := at.In(a.Zone.Location())
				minute := calendar.Clock(local.Hour()*60 + local.Minute())
				on := func(d time.Weekday) bool { return a.begin(time.Date(2026, 11, 1+int(d), 0, 0, 0, 0, time.UTC)) } // a Sunday
				today, yesterday := on(local.Weekday()), on((local.Weekday()+6)%7)
				if a.From < a.To && today && a.From <= minute && minute < a.To || a.From >= a.To && (today && minute >= a.From || yesterday && minute < a.To) {
					r = a.Rate
				}
			}
			return r
		}
		scheduled, until := c.Scheduled(now)
		for at, n := now, 0; n < 3000 && (until.IsZero() || at.Before(until)); at, n = at.Add(5*time.Minute), n+1 {
			if at.Month() == time.March && at.Day() >= 28 && at.Day() <= 30 { // an hour that is skipped
				return
			}
			open := said(at)
			if !scheduled.Closed.Until.IsZero() && !at.Before(scheduled.Closed.From) && at.Before(scheduled.Closed.Until) {
				if !open.IsZero() {
					t.Fatalf("%v: at %v it is closed, and the sections say %v", c.At, at, open)
				}
			} else if scheduled.Rate != open {
				t.Fatalf("%v: at %v the rate is %v, and the sections say %v", c.At, at, scheduled.Rate, open)
			}
		}
		if !until.IsZero() && said(until) == c.atTime(now).Rate {
			t.Fatalf("%v: nothing changes at %v", c.At, until)
		}
	})
}

// A rate of 0 at all times blocks. One that begins within a schedule and never ends, too.
func TestScheduledForEver(t *testing.T) {
	c := Class{Rate: rate("0 messages/s"), At: []At{{Hours: Hours{To: calendar.Midnight}, Rate: rate("0 messages/s")}}}
	if now, until := c.Scheduled(moment(t, "2026-11-23T12:00:00Z")); !now.Limit().IsZero() || now.Closed != (Span{}) || !until.IsZero() {
		t.Errorf("%v until %v", now, until)
	}
	if now, until := (Class{Rate: rate("1 messages/s")}).Scheduled(time.Now()); now.Closed != (Span{}) || !until.IsZero() {
		t.Errorf("without a schedule: %v until %v", now, until)
	}
}

// check prints sections, and warns of one that never holds.
func TestSectionsThatNeverHold(t *testing.T) {
	p, warnings, err := Parse("t.toml", []byte(`[class.a]
rate = "20 messages/s"
[[class.a.at]]
days = "sat"
from = "22:00"
to = "02:00"
rate = "1 messages/s"
[[class.a.at]]
days = ["sat", "sun"]
rate = "5 messages/s"
[listener.x]
listen = "127.0.0.1:2775"
protocol = "smpp"
upstream = "192.0.2.1:2775"
class = "a"
`))
	want := "t.toml:3:3: class.a.at[1]: it never holds: later ones hold at all its times; put it after them, or leave it out"
	if err != nil || warnings.Error() != want {
		t.Fatalf("%v\n%v\nwant %s", err, warnings, want)
	}
	var b strings.Builder
	p.WriteTree(&b)
	if want := "sat from 22:00 to 02:00 in UTC: rate 1 messages/s, sat, sun from 00:00 to 24:00 in UTC: rate 5 messages/s"; !strings.Contains(b.String(), want) {
		t.Errorf("the tree does not contain %s:\n%s", want, b.String())
	}
}

// check warns if nothing ever leaves, from the class or to some recipients.
func TestTimesAreAllTimes(t *testing.T) {
	const (
		at    = "rate = \"20 messages/s\"\n[[class.a.at]]\n"
		zero  = "rate = \"0 messages/s\"\n"
		next  = "[[class.a.at]]\n"
		quiet = "rate = \"20 messages/s\"\n[[class.a.quiet]]\n"
		ever  = "the limit is 0 at all times, so nothing ever leaves; days, from or to, unless this is to block"
		all   = "it is quiet at all times, so nothing ever leaves to all recipients; days, from or to, unless this is to block"
		india = "it is quiet at all times, so nothing ever leaves to 91*; days, from or to, unless this is to block"
	)
	for _, tt := range []struct{ class, want string }{
		{at + zero, "t.toml:3:3: class.a.at[1]: " + ever},
		{at + "to = \"24:00\"\n" + zero, "t.toml:3:3: class.a.at[1]: " + ever},
		{at + "to = \"12:00\"\n" + zero + next + "from = \"12:00\"\n" + zero, "t.toml:6:3: class.a.at[2]: " + ever},
		{at + "days = [\"sat\", \"sun\"]\n" + zero + next + "days = [\"mon\", \"tue\", \"wed\", \"thu\", \"fri\"]\n" + zero, "t.toml:6:3: class.a.at[2]: " + ever},
		{at + "from = \"21:00\"\nto = \"09:00\"\n" + zero + next + "from = \"09:00\"\nto = \"21:00\"\n" + zero, "t.toml:7:3: class.a.at[2]: " + ever},
		{at + zero + next + "to = \"00:01\"\nrate = \"1 messages/s\"\n", ""},
		{at + zero + next + "to = \"00:01\"\nzone = \"Europe/Paris\"\nrate = \"1 messages/s\"\n", ""},
		{at + "to = \"23:59\"\n" + zero, ""},
		{at + "to = \"12:00\"\n" + zero + next + "from = \"12:00\"\nzone = \"Europe/Paris\"\n" + zero, ""},
		{strings.Replace(at, "20", "0", 1) + "from = \"08:00\"\nrate = \"1 messages/s\"\n", ""}, // open by day
		{strings.Replace(at, "20", "0", 1) + zero, `t.toml:2:8: class.a.rate: "0 messages/s" lets nothing pass; a rate above 0, unless this is to block`},
		{quiet, "t.toml:3:3: class.a.quiet[1]: " + all},
		{quiet + "zone = \"Asia/Kolkata\"\n", "t.toml:3:3: class.a.quiet[1]: " + all},
		{quiet + "recipient = \"91*\"\n", "t.toml:3:3: class.a.quiet[1]: " + india},
		{quiet + "recipient = \"91*\"\nto = \"12:00\"\n[[class.a.quiet]]\nfrom = \"12:00\"\n", "t.toml:6:3: class.a.quiet[2]: " + india},
		{quiet + "recipient = \"91*\"\nto = \"12:00\"\n[[class.a.quiet]]\nrecipient = \"33*\"\nfrom = \"12:00\"\n", ""},
		{quiet + "days = \"sun\"\n", ""},
	} {
		_, warnings, err := parseClass(tt.class)
		got := ""
		if len(warnings) > 0 {
			got = warnings.Error()
		}
		if err != nil || got != tt.want {
			t.Errorf("%s\n%v\n%s\nwant %s", tt.class, err, got, tt.want)
		}
	}
}

// parseClass parses a class that a listener of SMPP uses.
func parseClass(class string) (*Policy, Errors, error) {
	return Parse("t.toml", []byte("[class.a]\n"+class+`
[listener.x]
listen = "127.0.0.1:2775"
protocol = "smpp"
upstream = "192.0.2.1:2775"
class = "a"
`))
}

// A rate of another period would make a class that names no window count in other windows, and each change
// of windows begins with one that is used up. So check refuses it, where it would.
func TestSectionsKeepTheWindow(t *testing.T) {
	const windows = "algorithm = \"fixed-window\"\n"
	for _, tt := range []struct {
		class, section string
		changes        bool
	}{
		{windows + `rate = "200000 messages/day"`, `rate = "5000 messages/h"`, true},
		{`algorithm = "sliding-log"` + "\n" + `rate = "600 messages/h"`, `rate = "1 messages/s"`, true},
		{`algorithm = "sliding-window"` + "\n" + `rate = "600 messages/h"`, `rate = "1 messages/s"`, true},
		{windows + `rate = "0 messages/s"` + "\n" + `at = [{ to = "01:00", rate = "9 messages/h" }, { from = "02:00", rate = "9 messages/min" }]`, "", true},
		{windows + `rate = "200000 messages/day"`, `rate = "100000 messages/day"`, false},
		{windows + `rate = "200000 messages/day"`, `rate = "0 messages/s"`, false}, // it is closed, and counts as before afterwards
		{windows + `rate = "0 messages/s"`, `rate = "200000 messages/day"`, false}, // the only windows that it has
		{windows + `rate = "200000 messages/day"` + "\n" + `window = "24h"`, `rate = "5000 messages/h"`, false},
		{windows + `rate = "200000 messages/day"` + "\n" + `window = "day"`, `rate = "5000 messages/h"`, false},
		{windows + `rate = "200000 messages/day"` + "\n" + `zone = "Europe/Paris"`, `rate = "5000 messages/h"`, false},
		{`rate = "10 messages/s"`, `rate = "300 messages/min"`, false}, // leaky has no window
	} {
		class := tt.class
		if tt.section != "" {
			class += "\n[[class.a.at]]\nto = \"06:00\"\n" + tt.section
		}
		if _, _, err := parseClass(class); (err != nil) != tt.changes || err != nil && !strings.Contains(err.Error(), "would close the class for a whole window") {
			t.Errorf("%s\nis refused: %v, want %v", class, err, tt.changes)
		}
	}
}

// With a ceil, the limit is the ceil, and its window counts.
func TestCeilsOfSectionsKeepTheWindow(t *testing.T) {
	const parent = "parent = \"b\"\nalgorithm = \"fixed-window\"\nrate = \"1 messages/s\"\nceil = \"10 messages/s\"\n"
	for section, want := range map[string]string{
		`rate = "60 messages/min"`: "",
		`ceil = "300 messages/min"`: `t.toml:8:8: class.a.at[1].ceil: "300 messages/min" counts in windows of 1min, and "10 messages/s" in windows of 1s: ` +
			`each change would close the class for a whole window; window = "1s" in [class.a], or a rate for each 1s`,
	} {
		_, _, err := parseClass(parent + "[[class.a.at]]\nto = \"06:00\"\n" + section + "\n[class.b]\nrate = \"20 messages/s\"")
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", section, got, want)
		}
	}
}

// While a set of the rate lasts, the schedule rests.
func TestSetOverASchedule(t *testing.T) {
	p, _, err := Load("testdata/good/schedule.toml")
	if err != nil {
		t.Fatal(err)
	}
	changed, _, err := p.With("account", map[string]string{"rate": "40 messages/s"})
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := changed.Class("account"); c.LimitAt(moment(t, "2026-11-28T12:00:00Z")) != rate("40 messages/s") {
		t.Errorf("on a Saturday the rate is %v", c.LimitAt(moment(t, "2026-11-28T12:00:00Z")))
	}
	if c, _ := p.Class("account"); len(c.At) != 2 {
		t.Error("the policy itself has changed")
	}
	changed, _, err = p.With("account", map[string]string{"headroom": "2%"})
	if c, _ := changed.Class("account"); err != nil || len(c.At) != 2 {
		t.Errorf("a set of another key ends the schedule: %v", err)
	}
}

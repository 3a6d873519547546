package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shaper/calendar"
)

// A limit that names no algorithm has that of its window.
func TestAlgorithmOfAFurtherLimit(t *testing.T) {
	for limit, want := range map[string]string{
		`"20 messages/s"`:               `{ rate = "20 messages/s", algorithm = "gcra" }`,
		`"59 messages/59s"`:             `{ rate = "59 messages/59s", algorithm = "gcra" }`,
		`"600 messages/min"`:            `{ rate = "600 messages/min", algorithm = "sliding-log" }`,
		`"600 messages/h"`:              `{ rate = "600 messages/h", algorithm = "sliding-log" }`,
		`"600 messages/2h"`:             `{ rate = "600 messages/2h", algorithm = "fixed-window" }`,
		`"600 messages/day"`:            `{ rate = "600 messages/day", algorithm = "fixed-window" }`,
		`{ rate = "600 messages/day" }`: `{ rate = "600 messages/day", algorithm = "fixed-window" }`,
		`["600 messages/month"]`:        `{ rate = "600 messages/month", algorithm = "fixed-window" }`,
		`{ rate = "3 messages/day", zone = "Europe/Paris" }`:                   `{ rate = "3 messages/day", algorithm = "fixed-window", window = "day", zone = "Europe/Paris" }`,
		`{ rate = "3 messages/week", reset = "06:00" }`:                        `{ rate = "3 messages/week", algorithm = "fixed-window", window = "week", reset = "06:00" }`,
		`{ rate = "3 messages/s", window = "day" }`:                            `{ rate = "3 messages/s", algorithm = "fixed-window", window = "day" }`,
		`{ rate = "3 messages/s", window = "30min" }`:                          `{ rate = "3 messages/s", algorithm = "sliding-log", window = "30min" }`,
		`{ rate = "3 messages/s", algorithm = "leaky", headroom = "5%" }`:      `{ rate = "3 messages/s", algorithm = "leaky", headroom = "5%" }`,
		`{ rate = "3 messages/h", algorithm = "token", burst = "9 messages" }`: `{ rate = "3 messages/h", algorithm = "token", burst = "9 messages" }`,
		`["1 messages/s", { rate = "2 messages/min" }]`:                        `{ rate = "1 messages/s", algorithm = "gcra" }, { rate = "2 messages/min", algorithm = "sliding-log" }`,
	} {
		p := mustParse(t, "[class.a]\nrate = \"20 messages/s\"\nalso = "+limit+`
[listener.x]
listen = "127.0.0.1:2775"
protocol = "smpp"
upstream = "192.0.2.1:2775"
class = "a"
`)
		var b strings.Builder
		if err := p.WriteTree(&b); err != nil || !strings.Contains(b.String(), "also             "+want) {
			t.Errorf("also = %s is printed as, want %s:\n%s", limit, want, b.String())
		}
	}
}

// Zones and periods of the calendar make windows.
func TestWindowsOfTheCalendar(t *testing.T) {
	p, _, err := Load("testdata/good/limits.toml")
	if err != nil {
		t.Fatal(err)
	}
	paris, _ := calendar.ParseZone("Europe/Paris")
	weekly, _ := p.Class("weekly")
	if got, want := weekly.Own().Calendar(), (calendar.Windows{Period: calendar.Week, Zone: paris}); got != want {
		t.Errorf("the windows of weekly are %v, want %v", got, want)
	}
	if got := weekly.Own().AtOnce(); got != 5000 {
		t.Errorf("a week holds %d", got)
	}
	pair, _ := p.Class("pair")
	month := pair.Also[0]
	if got := []any{month.AtOnce(), month.WindowInForce(), month.WindowText()}; !cmp.Equal(got, []any{int64(100000), 30 * 24 * time.Hour, "month from 09:30 in Asia/Kolkata"}) {
		t.Errorf("a month holds %v", got)
	}
}

// A limit of nothing is legal, and probably not meant.
func TestAFurtherLimitOfNothingIsWarnedOf(t *testing.T) {
	_, warnings, err := Parse("t.toml", []byte(`[class.a]
rate = "20 messages/s"
also = ["1 messages/s", "0 messages/s"]
[listener.x]
listen = "127.0.0.1:2775"
protocol = "smpp"
upstream = "192.0.2.1:2775"
class = "a"
`))
	want := `t.toml:3:25: class.a.also: "0 messages/s" lets nothing pass; a rate above 0, unless this is to block`
	if err != nil || warnings.Error() != want {
		t.Errorf("%v\n%v\nwant %s", err, warnings, want)
	}
}

package unit

import (
	"encoding"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

// ParseRate reads every form of a rate that docs/policy.md describes.
func TestParseRate(t *testing.T) {
	const s, min, h = time.Second, time.Minute, time.Hour
	for _, c := range []struct {
		text  string
		kind  Kind
		units int64 // per
		per   time.Duration
		print string // "" if the same
	}{
		// bits per second, as tc writes them; powers of 1000
		{"20mbit", Bytes, 2_500_000, s, ""},
		{"500kbit", Bytes, 62_500, s, ""},
		{"1.5gbit", Bytes, 187_500_000, s, ""},
		{"8bit", Bytes, 1, s, ""},
		{"1bit", Bytes, 1, 8 * s, ""},
		{"70tbit", Bytes, 8_750_000_000_000, s, ""},
		{"20Mbit", Bytes, 2_500_000, s, "20mbit"}, // the way tc prints it

		// bytes per period; KB, MB, GB of 1000, KiB, MiB, GiB of 1024
		{"64KiB/s", Bytes, 65536, s, ""},
		{"1.25MB/s", Bytes, 1_250_000, s, "10mbit"},
		{"100kB/s", Bytes, 100_000, s, "800kbit"},
		{"3GiB/h", Bytes, 3 << 30, h, ""},
		{"1500B/s", Bytes, 1500, s, "12kbit"},

		// counts per period
		{"30 messages/s", Messages, 30, s, ""},
		{"200 packets/s", Packets, 200, s, ""},
		{"5 connections/s", Connections, 5, s, ""},
		{"0.75 messages/s", Messages, 3, 4 * s, ""},
		{"20000 messages/15min", Messages, 20000, 15 * min, ""},
		{"120 packets/min", Packets, 120, min, ""},
		{"1 message/24h", Messages, 1, 24 * h, "1 messages/day"},
		{"1 message/d", Messages, 1, 24 * h, "1 messages/day"},
		{"7 messages/1min30s", Messages, 7, 90 * s, "7 messages/90s"},

		// short forms, and spaces where people put them
		{"30msg/s", Messages, 30, s, "30 messages/s"},
		{"200 pkt/s", Packets, 200, s, "200 packets/s"},
		{"5 conn/s", Connections, 5, s, "5 connections/s"},
		{"5 connections / 10 s", Connections, 5, 10 * s, "5 connections/10s"},
		{"20 mbit", Bytes, 2_500_000, s, "20mbit"},
		{"007.50 packets/s", Packets, 15, 2 * s, "7.5 packets/s"},

		// a rate of 0, which blocks
		{"0bit", Bytes, 0, 0, ""},
		{"0 messages/min", Messages, 0, 0, ""},
	} {
		r, err := ParseRate(c.text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if c.print == "" {
			c.print = c.text
		}
		units, ns := r.Exact()
		if r.Kind() != c.kind || units*int64(c.per) != ns*c.units {
			t.Errorf("%q is %d %v per %v, want %d %v per %v", c.text, units, r.Kind(), time.Duration(ns), c.units, c.kind, c.per)
		}
		if r.String() != c.print {
			t.Errorf("%q prints as %q, want %q", c.text, r, c.print)
		}
	}
}

// These are the errors that a user reads after file:line:column.
func TestParseRateErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                              `it does not begin with a number`,
		"fast":                          `it does not begin with a number`,
		"-5mbit":                        `it does not begin with a number`,
		".5mbit":                        `it does not begin with a number`,
		"1.mbit":                        `it does not begin with a number`,
		"1.2.3mbit":                     `it does not begin with a number`,
		"30":                            `it has no unit`,
		"30 items/s":                    `"items" is not a unit of a rate`,
		"30 messages/fortnight":         `the period: "fortnight" is not a unit of time`,
		"30 messages/.5s":               `the period: ".5s" is not a unit of time`,
		"30 messages/15":                `the period: it has no unit`,
		"30 messages/0s":                `the period must be above 0s and at most 8784h`,
		"30 messages/8785h":             `the period must be above 0s and at most 8784h`,
		"9TiB/s":                        `it is too large`,
		"99999999999999999999 msg/s":    `it is too large`,
		"1.0000000001mbit":              `it has more digits than can be kept exactly`,
		"0.000000001 messages/h":        `it has more digits than can be kept exactly`,
		"8000000000000.000000001 pkt/s": `it is too large`,
	} {
		_, err := ParseRate(text)
		want = `"` + text + `" is not a rate: ` + want + `; a rate is like "20mbit", "64KiB/s", "200 packets/s" or "120 connections/min"`
		if err == nil || err.Error() != want {
			t.Errorf("ParseRate(%q):\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestRateTime(t *testing.T) {
	for _, c := range []struct {
		rate string
		n    int64
		want time.Duration
	}{
		{"30 messages/s", 1, 33_333_334}, // never early
		{"30 messages/s", 30, time.Second},
		{"30 messages/s", 0, 0},
		{"30 messages/s", -1, 0},
		{"20000 messages/15min", 20000, 15 * time.Minute},
		{"8mbit", 1500, 1500 * time.Microsecond},
		{"0.5 packets/s", 1, 2 * time.Second},
		{"3 messages/s", 1e9, 333_333_333_333_333_334}, // no drift in 10^9 items
		{"0bit", 0, 0},
		{"0bit", 1, math.MaxInt64}, // blocks
		{"1 messages/8784h", math.MaxInt64, math.MaxInt64},
	} {
		if got := rate(t, c.rate).Time(c.n); got != c.want {
			t.Errorf("%s: %d take %v, want %v", c.rate, c.n, got, c.want)
		}
	}
}

func TestRateUnits(t *testing.T) {
	for _, c := range []struct {
		rate string
		d    time.Duration
		want int64
	}{
		{"30 messages/s", time.Second, 30},
		{"30 messages/s", 33_333_333, 0},
		{"30 messages/s", 33_333_334, 1},
		{"30 messages/s", -time.Second, 0},
		{"20000 messages/15min", 15 * time.Minute, 20000},
		{"100MB/s", time.Millisecond, 100_000},
		{"0bit", time.Hour, 0},
		{"8TiB/s", math.MaxInt64, math.MaxInt64},
	} {
		if got := rate(t, c.rate).Units(c.d); got != c.want {
			t.Errorf("%s: %v allow %d, want %d", c.rate, c.d, got, c.want)
		}
	}
}

// Headroom lowers a rate, exactly if a Rate can hold the digits, else by slightly more.
func TestRateBelow(t *testing.T) {
	for _, c := range []struct{ rate, headroom, want string }{
		{"30 messages/s", "0%", "30 messages/s"},
		{"30 messages/s", "3%", "29.1 messages/s"},
		{"20000 messages/15min", "2.5%", "19500 messages/15min"},
		{"100mbit", "0.5%", "99.5mbit"},
		{"0bit", "3%", "0bit"},
		{"1 messages/s", "99.9999%", "0.000001 messages/s"},
		// more digits than fit
		{"0.000001 packets/s", "0.0001%", "0.000000999 packets/s"},
		{"1 messages/day", "3.3333%", "0.96666 messages/day"},
		{"1 messages/8784h", "2.55%", "0.97 messages/8784h"},
		{"0.000000001bit", "3%", "0bit"},
		{"8TiB/s", "0.0001%", "70368673808919bit"},
	} {
		p, err := ParsePercent(c.headroom)
		if err != nil {
			t.Fatal(err)
		}
		if got := rate(t, c.rate).Below(p).String(); got != c.want {
			t.Errorf("%s less %s is %s, want %s", c.rate, c.headroom, got, c.want)
		}
	}
}

func TestRateCompare(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"1 messages/s", "60 messages/min", 0},
		{"1 messages/s", "59 messages/min", +1},
		{"20000 messages/15min", "22.3 messages/s", -1},
		{"8mbit", "1MB/s", 0},
		{"8mbit", "1MiB/s", -1},
		{"0bit", "0B/min", 0},
		{"0bit", "1bit", -1},
		{"8TiB/s", "1B/8784h", +1},
		{"9gbit", "1 packets/s", -1}, // kinds do not compare: their order
	} {
		if got := rate(t, c.a).Compare(rate(t, c.b)); got != c.want {
			t.Errorf("%s against %s is %d, want %d", c.a, c.b, got, c.want)
		}
		if got := rate(t, c.b).Compare(rate(t, c.a)); got != -c.want {
			t.Errorf("%s against %s is %d, want %d", c.b, c.a, got, -c.want)
		}
	}
}

// Rates are comparable with ==, so that a diff of two policies can use it.
func TestRateEquality(t *testing.T) {
	if rate(t, "20mbit") != rate(t, "20000kbit") || rate(t, "8mbit") != BytesPerSecond(1_000_000) {
		t.Error("two spellings of one rate are not equal")
	}
	if rate(t, "1 messages/s") == rate(t, "60 messages/min") {
		t.Error("rates with different periods are equal")
	}
}

func TestRateAccessors(t *testing.T) {
	r := rate(t, "20000 messages/15min")
	if r.Period() != 15*time.Minute || r.IsZero() || math.Abs(r.PerSecond()-22.2222222222) > 1e-9 {
		t.Errorf("%s: period %v, zero %v, per second %v", r, r.Period(), r.IsZero(), r.PerSecond())
	}
	var none Rate
	if units, ns := none.Exact(); units != 0 || ns != 0 || !none.IsZero() || none.PerSecond() != 0 ||
		none.Time(1) != math.MaxInt64 || none.Units(time.Hour) != 0 || none.Below(10*percent) != none || none.String() != "0" {
		t.Error("the zero Rate allows something")
	}
}

func TestNewRatePanics(t *testing.T) {
	for name, f := range map[string]func(){
		"negative":  func() { BytesPerSecond(-1) },
		"too large": func() { BytesPerSecond(maxAmount + 1) },
		"no period": func() { NewRate(Packets, 1, 0) },
		"ages":      func() { NewRate(Packets, 1, maxPeriod+1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// Every quantity reads and prints as text, for policy files and JSON.
func TestText(t *testing.T) {
	for _, c := range []struct {
		text string
		into interface {
			encoding.TextMarshaler
			encoding.TextUnmarshaler
		}
	}{
		{"20mbit", new(Rate)}, {"64KiB", new(Size)}, {"500 messages", new(Count)},
		{"15min", new(Duration)}, {"3%", new(Percent)},
	} {
		if err := c.into.UnmarshalText([]byte(c.text)); err != nil {
			t.Error(err)
		}
		if text, err := c.into.MarshalText(); string(text) != c.text || err != nil {
			t.Errorf("%q prints as %q, %v", c.text, text, err)
		}
		if err := c.into.UnmarshalText([]byte("30")); err == nil { // the text of an integer
			t.Errorf("%T accepts an integer: %v", c.into, c.into)
		}
	}
}

func rate(t testing.TB, s string) Rate {
	t.Helper()
	r, err := ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The error of a rate that people often write proposes the rate that they mean.
func TestRateRemedies(t *testing.T) {
	for in, want := range map[string]string{
		"30 /s":                `it does not say what it counts; write "30 messages/s", "30 packets/s" or "30 connections/s"`,
		"20mbps":               `"mbps" is not a unit of a rate; write "20mbit" for bits, or "20MB/s" for bytes`, // megabytes to tc, megabits to people
		"20mbit/s":             `"mbit" is not a unit of a rate; write "20mbit": bits are per second`,
		"64kib/s":              `"kib" is not a unit of a rate; write "64KiB/s"`,
		"20 Packets/min":       `"Packets" is not a unit of a rate; write "20 packets/min"`,
		"20/s":                 `it does not say what it counts; write "20 messages/s", "20 packets/s" or "20 connections/s"`,
		"0.5 /15min":           `it does not say what it counts; write "0.5 messages/15min", "0.5 packets/15min" or "0.5 connections/15min"`,
		"1 Mbit/s":             `"Mbit" is not a unit of a rate; write "1mbit": bits are per second`,
		"1.5 kbits/s":          `"kbits" is not a unit of a rate; write "1.5kbit": bits are per second`,
		"1Mbps":                `"Mbps" is not a unit of a rate; write "1mbit" for bits, or "1MB/s" for bytes`,
		"2 Gb/s":               `"Gb" is not a unit of a rate; write "2gbit" for bits, or "2GB/s" for bytes`,
		"100bps":               `"bps" is not a unit of a rate; write "100bit" for bits, or "100B/s" for bytes`,
		"10 requests/s":        `"requests" is not a unit of a rate; write "10 messages/s"`,
		"10r/s":                `"r" is not a unit of a rate; write "10 messages/s"`, // limit_req_zone of nginx
		"30r/m":                `"r" is not a unit of a rate; write "30 messages/m"`,
		"10 requests per min":  `"requests per min" is not a unit of a rate; write "10 messages/min"`,
		"2 MB per second":      `"MB per second" is not a unit of a rate; write "2MB/second"`,
		"10 req/min":           `"req" is not a unit of a rate; write "10 messages/min"`,
		"10 queries/day":       `"queries" is not a unit of a rate; write "10 messages/day"`,
		"30 tps":               `"tps" is not a unit of a rate; write "30 messages/s"`,
		"30pps":                `"pps" is not a unit of a rate; write "30 packets/s"`,
		"1 Mbit/min":           `"Mbit" is not a unit of a rate; ` + rateForm,
		"10 apples/s":          `"apples" is not a unit of a rate; ` + rateForm,
		"10 messages/eon":      `the period: "eon" is not a unit of time; ` + rateForm,
		"9999999999999bps":     `"bps" is not a unit of a rate; write "9999999999999bit" for bits`,
		"20 messages/sec":      `the period: "sec" is not a unit of time; write "20 messages/s"`,
		"20 msg/secs":          `the period: "secs" is not a unit of time; write "20 messages/s"`,
		"20 messages/seconds":  `the period: "seconds" is not a unit of time; write "20 messages/s"`,
		"64KiB/Sec":            `the period: "Sec" is not a unit of time; write "64KiB/s"`,
		"20mbit/sec":           `"mbit" is not a unit of a rate; write "20mbit": bits are per second`,
		"20 packets/mins":      `the period: "mins" is not a unit of time; write "20 packets/min"`,
		"20 packets/minutes":   `the period: "minutes" is not a unit of time; write "20 packets/min"`,
		"20 packets/15 mins":   `the period: "mins" is not a unit of time; write "20 packets/15min"`,
		"20 messages/hours":    `the period: "hours" is not a unit of time; write "20 messages/h"`,
		"20 requests/days":     `"requests" is not a unit of a rate; write "20 messages/day"`,
		"20 messages/days":     `the period: "days" is not a unit of time; write "20 messages/day"`,
		"20 messages/weeks":    `the period: "weeks" is not a unit of time; write "20 messages/week"`,
		"20 messages/2day":     `the period: "day" is not a unit of time; write "20 messages/48h"`,
		"5 tps/min":            `"tps" is not a unit of a rate; write "5 messages/s" or "5 messages/min"`,
		"1,000 msg/s":          `a number has no commas; write "1000 messages/s"`,
		"1,000,000 tps":        `a number has no commas; write "1000000 messages/s"`,
		"20 msgs":              `"msgs" is not a unit of a rate; write "20 messages/s" or "20 messages/min"`,
		"20 msgs/s":            `"msgs" is not a unit of a rate; write "20 messages/s"`,
		"10 bytes/s":           `"bytes" is not a unit of a rate; write "10B/s"`,
		"10 kbytes/s":          `"kbytes" is not a unit of a rate; write "10KB/s"`,
		"20 messages":          `it has no period, such as "/s"; write "20 messages/s" or "20 messages/min"`,
		"64KiB":                `it has no period, such as "/s"; write "64KiB/s"`,
		"1MB/sec":              `the period: "sec" is not a unit of time; write "1MB/s"`,
		"20/":                  `it does not say what it counts; write "20 messages/s", "20 packets/s" or "20 connections/s"`,
		"20 messages/":         `it has no period after the slash; write "20 messages/s"`,
		"9999999999999 msgs/s": `"msgs" is not a unit of a rate; ` + rateForm,
	} {
		_, err := ParseRate(in)
		if err == nil || err.Error() != fmt.Sprintf("%q is not a rate: %s", in, want) {
			t.Errorf("%s:\n got %v\nwant %s", in, err, want)
		}
	}
}

// Every rate that an error proposes is valid.
func TestRemediesAreRates(t *testing.T) {
	numbers := []string{"", "1", "20", "0.5", "1,000", "1,5", ".", "0.0000000001", "9999999999999", "99999999999999999999"}
	words := append([]string{"", " ", "bytes", "byte", "kb", "kib", "Gb", "mbit", "tbits", "mbps", "bps", "b", "items", "apples", "msgs", "pkts", "conns", "queries"}, messageWords...)
	for word := range perSecondWords {
		words = append(words, word)
	}
	for _, k := range kindNames {
		words = append(words, k.long, k.short)
	}
	periods := []string{"", "/", "/s", "/S", "/sec", "/mins", "/ hours", "/2day", "/0s", "/0 days", "/9999 weeks", "/1.5 days", "/15 min", "/eon", "/s/s"}
	proposed := regexp.MustCompile(`"([^"]*)"`)
	remedies := 0
	for _, number := range numbers {
		for _, word := range words {
			for _, period := range periods {
				_, err := ParseRate(number + " " + word + period)
				if err == nil {
					continue
				}
				_, remedy, _ := strings.Cut(err.Error(), "; ")
				for _, rate := range proposed.FindAllStringSubmatch(remedy, -1) {
					if remedies++; func() error { _, err := ParseRate(rate[1]); return err }() != nil {
						t.Errorf("%v", err)
					}
				}
			}
		}
	}
	if remedies < 1000 {
		t.Errorf("only %d proposals", remedies)
	}
}

func TestPeriodWords(t *testing.T) {
	for in, want := range map[string]Rate{
		"5000 messages/day":   NewRate(Messages, 5000, 24*time.Hour),
		"7 connections/week":  NewRate(Connections, 7, 7*24*time.Hour),
		"9 messages/month":    NewRate(Messages, 9, 30*24*time.Hour),
		"64KiB/hour":          NewRate(Bytes, 65536, time.Hour),
		"120 packets/minute":  NewRate(Packets, 120, time.Minute),
		"20 messages/ second": NewRate(Messages, 20, time.Second),
	} {
		got, err := ParseRate(in)
		if err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", in, got, err, want)
		}
		if strings.HasSuffix(in, "/day") || strings.HasSuffix(in, "/week") || strings.HasSuffix(in, "/month") {
			if got.String() != in {
				t.Errorf("%s prints as %v", in, got)
			}
		}
		if back, err := ParseRate(got.String()); err != nil || back != got {
			t.Errorf("%s prints as %v, which reads as %v, %v", in, got, back, err)
		}
	}
}

// As docs/policy.md says, the window of a day begins at 0:00 UTC, and that of a week on
// Monday. The algorithms use time.Truncate.
func TestDaysAndWeeksBegin(t *testing.T) {
	now := time.Date(2026, 8, 13, 15, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"1 messages/day":  time.Date(2026, 8, 13, 0, 0, 0, 0, time.UTC),
		"1 messages/week": time.Date(2026, 8, 10, 0, 0, 0, 0, time.UTC),
	} {
		r, err := ParseRate(in)
		if got := now.Truncate(r.Period()); err != nil || !got.Equal(want) {
			t.Errorf("%s: the window began %v, want %v, %v", in, got, want, err)
		}
	}
}

package unit

import (
	"math"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  time.Duration
		print string // "" if the same
	}{
		{"250ms", 250 * time.Millisecond, ""},
		{"2s", 2 * time.Second, ""},
		{"15min", 15 * time.Minute, ""},
		{"1h", time.Hour, ""},
		{"1min30s", 90 * time.Second, "90s"},
		{"2m", 2 * time.Minute, "2min"}, // as Go writes it
		{"7d", 168 * time.Hour, "168h"},
		{"1.5s", 1500 * time.Millisecond, "1500ms"},
		{"0.000000001s", 1, "1ns"},
		{"20 us", 20 * time.Microsecond, "20us"},
		{"0s", 0, ""},
		{"9223372036854775807ns", math.MaxInt64, ""},
	} {
		got, err := ParseDuration(c.text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if c.print == "" {
			c.print = c.text
		}
		if time.Duration(got) != c.want || got.String() != c.print {
			t.Errorf("%q is %v and prints as %q, want %v and %q", c.text, time.Duration(got), got, c.want, c.print)
		}
	}
}

func TestParseDurationErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                         `it does not begin with a number`,
		"soon":                     `it does not begin with a number`,
		"-5s":                      `it does not begin with a number`,
		"30":                       `it has no unit`,
		"1min30":                   `it has no unit`,
		"2 weeks":                  `"weeks" is not a unit of time`,
		"2S":                       `"S" is not a unit of time`,
		"0.5ns":                    `it is not a whole number of nanoseconds`,
		"300000000h":               `it is too large`,
		"9223372036854775807ns1ns": `it is too large`,
	} {
		_, err := ParseDuration(text)
		want = `"` + text + `" is not a duration: ` + want + `; a duration is like "250ms", "2s", "15min" or "1h"`
		if err == nil || err.Error() != want {
			t.Errorf("ParseDuration(%q):\n got %v\nwant %s", text, err, want)
		}
	}
}

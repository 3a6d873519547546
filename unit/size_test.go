package unit

import "testing"

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  Size
		print string // "" if the same
	}{
		{"64KiB", 64 * KiB, ""},
		{"1MB", 1_000_000, ""},
		{"1500B", 1500, ""},
		{"1 MiB", MiB, "1MiB"},
		{"1.5KiB", 1536, "1536B"},
		{"0.5KiB", 512, "512B"},
		{"2GB", 2_000_000_000, ""},
		{"8TiB", 8 << 40, ""},
		{"1kB", 1000, "1KB"},
		{"10000000B", 10_000_000, "10MB"},
		{"0B", 0, ""},
	} {
		got, err := ParseSize(c.text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if c.print == "" {
			c.print = c.text
		}
		if got != c.want || got.String() != c.print {
			t.Errorf("%q is %d and prints as %q, want %d and %q", c.text, int64(got), got, int64(c.want), c.print)
		}
	}
}

func TestParseSizeErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":        `it does not begin with a number`,
		"-1B":     `it does not begin with a number`,
		"64":      `it has no unit`,
		"64Kib":   `"Kib" is not a unit of a size`,
		"64K":     `"K" is not a unit of a size`,
		"1mbit":   `"mbit" is not a unit of a size`,
		"1.5B":    `it is not a whole number of bytes`,
		"9TiB":    `it is too large: the largest is "8TiB"`,
		"9e9B":    `"e9B" is not a unit of a size`,
		"64KiB/s": `"KiB/s" is not a unit of a size`,
	} {
		_, err := ParseSize(text)
		want = `"` + text + `" is not a size: ` + want + `; a size is like "64KiB", "1MB" or "1500B"`
		if err == nil || err.Error() != want {
			t.Errorf("ParseSize(%q):\n got %v\nwant %s", text, err, want)
		}
	}
	if got := Size(-1).String(); got != "-1B" {
		t.Errorf("the size -1 prints as %q", got)
	}
}

func TestParseCount(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  Count
		print string
	}{
		{"500 messages", Count{500, Messages}, "500 messages"},
		{"10 packets", Count{10, Packets}, "10 packets"},
		{"1 packet", Count{1, Packets}, "1 packets"},
		{"10pkt", Count{10, Packets}, "10 packets"},
		{"20 conn", Count{20, Connections}, "20 connections"},
		{"1000 items", Count{1000, Items}, "1000 items"},
		{"0 msg", Count{0, Messages}, "0 messages"},
	} {
		got, err := ParseCount(c.text)
		if err != nil || got != c.want || got.String() != c.print {
			t.Errorf("%q is %+v and prints as %q, want %+v and %q (%v)", c.text, got, got, c.want, c.print, err)
		}
	}
}

func TestParseCountErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                  `it does not begin with a number`,
		"many":              `it does not begin with a number`,
		"500":               `it has no unit`,
		"500 bytes":         `"bytes" is not a unit of a count`,
		"500 msgs":          `"msgs" is not a unit of a count`,
		"1.5 packets":       `it is not a whole number`,
		"8796093022209 pkt": `it is too large: the largest is 8796093022208`,
	} {
		_, err := ParseCount(text)
		want = `"` + text + `" is not a count: ` + want + `; a count is like "500 messages", "10 packets" or "1000 items"`
		if err == nil || err.Error() != want {
			t.Errorf("ParseCount(%q):\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestParsePercent(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  Percent
		print string
	}{
		{"3%", 30_000, "3%"},
		{"2.5%", 25_000, "2.5%"},
		{"0%", 0, "0%"},
		{"0.0001%", 1, "0.0001%"},
		{"99.9999%", 999_999, "99.9999%"},
		{"3 %", 30_000, "3%"},
	} {
		got, err := ParsePercent(c.text)
		if err != nil || got != c.want || got.String() != c.print {
			t.Errorf("%q is %d and prints as %q, want %d and %q (%v)", c.text, int64(got), got, int64(c.want), c.print, err)
		}
	}
}

func TestParsePercentErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":         `it does not begin with a number`,
		"0.03":     `it has no percent sign`,
		"-3%":      `it does not begin with a number`,
		"100%":     `it is too large`,
		"0.00001%": `it has more digits than can be kept exactly`,
	} {
		_, err := ParsePercent(text)
		want = `"` + text + `" is not a share: ` + want + `; a share is like "3%", from 0% to below 100%`
		if err == nil || err.Error() != want {
			t.Errorf("ParsePercent(%q):\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestKindString(t *testing.T) {
	for kind, want := range map[Kind]string{
		Bytes: "bytes", Packets: "packets", Messages: "messages", Connections: "connections", Items: "items",
		0: "kind(0)", 99: "kind(99)",
	} {
		if kind.String() != want {
			t.Errorf("kind %d prints as %q, want %q", uint8(kind), kind, want)
		}
	}
}

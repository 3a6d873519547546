package unit

import (
	"fmt"
	"strings"
)

// A prefix is the name of a unit and its factor, in bits or bytes per second.
type prefix struct {
	name   string
	factor float64
}

var (
	bitPrefixes    = []prefix{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
	binaryPrefixes = []prefix{{"GiB/s", 1 << 30}, {"MiB/s", 1 << 20}, {"KiB/s", 1 << 10}, {"B/s", 1}}
	metricPrefixes = []prefix{{"GB/s", 1e9}, {"MB/s", 1e6}, {"KB/s", 1e3}, {"B/s", 1}}
)

// Like prints a measured rate, in units per second, in the style of r: "19.8mbit" if r is
// "20mbit". It rounds to three digits.
func (r Rate) Like(perSecond float64) string {
	text := r.String()
	switch {
	case r.Kind() != Bytes:
		return fmt.Sprintf("%s %v/s", rounded(perSecond), r.Kind())
	case strings.HasSuffix(text, "bit"):
		return scaled(perSecond*8, bitPrefixes)
	case strings.Contains(text, "iB"):
		return scaled(perSecond, binaryPrefixes)
	}
	return scaled(perSecond, metricPrefixes)
}

// scaled prints v in the largest unit of which it has at least one.
func scaled(v float64, prefixes []prefix) string {
	last := prefixes[len(prefixes)-1]
	for _, p := range prefixes {
		if v >= p.factor {
			last = p
			break
		}
	}
	return rounded(v/last.factor) + last.name
}

// rounded prints v with three significant digits, and all digits of its whole part.
func rounded(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

package unit

import (
	"fmt"
	"strings"
)

// A prefix is a unit and how many of the base unit it stands for.
type prefix struct {
	name   string
	factor float64
}

var (
	bitPrefixes    = []prefix{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
	binaryPrefixes = []prefix{{"GiB/s", 1 << 30}, {"MiB/s", 1 << 20}, {"KiB/s", 1 << 10}, {"B/s", 1}}
	metricPrefixes = []prefix{{"GB/s", 1e9}, {"MB/s", 1e6}, {"KB/s", 1e3}, {"B/s", 1}}
)

// Like prints a measured rate, rounded, as this one is written: beside "20mbit"
// stands "19.8mbit".
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

// scaled prints v with the largest prefix of which it is at least one.
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

// rounded prints at most three digits that mean something.
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

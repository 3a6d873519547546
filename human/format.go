package human

import (
	"fmt"
	"strings"
	"time"

	"shaper/stats"
)

// Plural returns a number of things: "1 class", "2 classes".
func Plural[N int | int64 | uint64](n N, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Bytes returns a rounded number of bytes: "1.5KiB".
func Bytes[N int64 | uint64](n N) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	v, i := float64(n)/1024, 0
	for ; v >= 1023.95 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f%ciB", v, units[i])
}

// Duration returns a time, rounded to three digits below a minute: "24.1ms".
func Duration(s stats.Seconds) string {
	d := time.Duration(s)
	switch {
	case s == stats.Never:
		return "never"
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%.2gms", d.Seconds()*1e3)
	case d < time.Second-500*time.Microsecond: // else it would round to 1000ms
		return fmt.Sprintf("%.3gms", d.Seconds()*1e3)
	case d < time.Minute:
		return fmt.Sprintf("%.3gs", d.Seconds())
	}
	return withoutZeroSeconds(d.Round(time.Second).String())
}

// withoutZeroSeconds turns "2h0m0s" into "2h0m".
func withoutZeroSeconds(s string) string {
	if short, ok := strings.CutSuffix(s, "m0s"); ok {
		return short + "m"
	}
	return s
}

// HoldLeft returns for how long a hold lasts, as the end of a text about it: ", 33.7ms". It is "" if there
// is no hold, or if nobody knows.
func HoldLeft(h *stats.Hold, now time.Time) string {
	if h == nil || !h.Until.After(now) {
		return ""
	}
	return ", " + Duration(stats.Seconds(h.Until.Sub(now)))
}

// Elapsed returns the time from a to b, in seconds or coarser: "2d2h"; "0s" if b is before a.
func Elapsed(a, b time.Time) string {
	d := max(b.Sub(a), 0)
	if days := int(d / (24 * time.Hour)); days > 0 {
		return fmt.Sprintf("%dd%dh", days, int(d/time.Hour)%24)
	}
	return withoutZeroSeconds(d.Round(time.Second).String())
}

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/stats"
)

func printJSON(c *cli.Context, v any) error {
	out := json.NewEncoder(c.App.Writer)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// bytesText returns a rounded number of bytes: "1.5KiB".
func bytesText[N int64 | uint64](n N) string {
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

// duration returns a time, rounded to three digits below a minute: "24.1ms".
func duration(s stats.Seconds) string {
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

// plural returns a number and what it counts: "1 item", "2 items".
func plural[N int | int64 | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// elapsed returns the time from a to b, in seconds or coarser: "2d2h"; "0s" if b is before a.
func elapsed(a, b time.Time) string {
	d := max(b.Sub(a), 0)
	if days := int(d / (24 * time.Hour)); days > 0 {
		return fmt.Sprintf("%dd%dh", days, int(d/time.Hour)%24)
	}
	return withoutZeroSeconds(d.Round(time.Second).String())
}

func timestamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// itemsLost returns how many items were lost for any reason.
func itemsLost(by map[stats.Reason]stats.LossReading) (n uint64) {
	for _, l := range by {
		n += l.Items
	}
	return n
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

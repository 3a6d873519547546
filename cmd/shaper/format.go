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

// human prints a number of bytes, rounded.
func human[N int64 | uint64](n N) string {
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

// duration prints a time rounded to what a person reads.
func duration(s stats.Seconds) string {
	d := time.Duration(s)
	switch {
	case s == stats.Never:
		return "never"
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%.2gms", d.Seconds()*1e3)
	case d < time.Second-500*time.Microsecond: // else it is 1 s, rounded
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

func plural[N int | int64 | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

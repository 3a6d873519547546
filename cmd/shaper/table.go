package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"shaper/stats"
)

// table prints rows in aligned columns. A column whose header begins with ">"
// is aligned to the right.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// drop takes out columns, by their names without the ">".
func (t *table) drop(names ...string) {
	for i := len(t.header) - 1; i >= 0; i-- {
		if !slices.Contains(names, strings.TrimPrefix(t.header[i], ">")) {
			continue
		}
		t.header = slices.Delete(t.header, i, i+1)
		for j := range t.rows {
			t.rows[j] = slices.Delete(t.rows[j], i, i+1)
		}
	}
}

func (t *table) write(w io.Writer, indent string) {
	names := make([]string, len(t.header))
	widths := make([]int, len(t.header))
	for i, h := range t.header {
		names[i] = strings.TrimPrefix(h, ">")
		widths[i] = utf8.RuneCountInString(names[i])
	}
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range append([][]string{names}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if strings.HasPrefix(t.header[i], ">") {
				cell = pad + cell
			} else {
				cell += pad
			}
			line.WriteString("  " + cell)
		}
		fmt.Fprintln(w, strings.TrimRight(indent+line.String()[2:], " "))
	}
}

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

package top

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// blocks fill a cell from below by eighths.
var blocks = []rune(" ▁▂▃▄▅▆▇█")

// sampled returns the largest value in each of so many equal parts of the time since from; NaN where
// nothing is known. A value holds for the time since the one before.
func sampled(times []time.Time, values []float64, from, to time.Time, parts int) []float64 {
	all := make([]float64, parts)
	for i := range all {
		all[i] = math.NaN()
	}
	span := to.Sub(from)
	if span <= 0 {
		return all
	}
	place := func(t time.Time) float64 { return float64(parts) * t.Sub(from).Seconds() / span.Seconds() }
	since := place(times[0])
	for i, t := range times {
		until := place(t)
		last := max(int(math.Ceil(until))-1, int(math.Floor(since)))
		for part := max(int(math.Floor(since)), 0); part <= min(last, parts-1); part++ {
			all[part] = larger(all[part], values[i])
		}
		since = until
	}
	return all
}

// plot draws values between 0 and top, each in a column of its own. What is known is at least a line;
// what is not known is empty.
func plot(values []float64, top float64, height int) []string {
	rows := make([]strings.Builder, height)
	for _, v := range values {
		eighths := 0
		if !math.IsNaN(v) {
			eighths = 1
			if top > 0 {
				eighths = max(1, int(math.Round(min(v/top, 1)*float64(8*height))))
			}
		}
		for i := range rows {
			rows[i].WriteRune(blocks[min(max(eighths-8*(height-1-i), 0), 8)])
		}
	}
	out := make([]string, height)
	for i := range rows {
		out[i] = rows[i].String()
	}
	return out
}

// highest returns the largest value that is known, at least 0.
func highest(values []float64) (top float64) {
	for _, v := range values {
		top = larger(top, v)
	}
	return top
}

// short prints a number with three digits: "1.5k".
func short(v float64) string {
	const prefixes = "kMGT"
	i := -1
	for ; v >= 999.5 && i < len(prefixes)-1; i++ {
		v /= 1000
	}
	text := strconv.FormatFloat(v, 'g', 3, 64)
	if i >= 0 {
		text += prefixes[i : i+1]
	}
	return text
}

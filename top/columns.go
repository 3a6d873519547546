package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaper/human"
	"shaper/stats"
	"shaper/web"
)

// row is a class and the number of classes above it.
type row struct {
	of    *web.Class
	depth int
}

// column is a column of the tree. Its names are those of `shaper classes`.
type column struct {
	name  string
	text  func(row, time.Time) string
	end   func(row, time.Time) string // the end of text, which stays if there is no room; nil: it has none
	right bool                        // figures
}

var columns = []column{
	{name: classColumn, text: func(r row, _ time.Time) string { return strings.Repeat("  ", r.depth) + r.of.Name }},
	{name: "RATE", right: true, text: func(r row, _ time.Time) string { return rateText(r.of) }},
	{name: "CEIL", right: true, text: func(r row, _ time.Time) string { return cmp.Or(r.of.Ceil, "-") }},
	{name: "NOW", right: true, text: func(r row, _ time.Time) string { return r.of.Now }},
	{name: "LOAD", right: true, text: func(r row, _ time.Time) string { return percent(r.of.Load) }},
	{name: "ITEMS", right: true, text: func(r row, _ time.Time) string { return strconv.FormatInt(r.of.Items, 10) }},
	{name: "BACKLOG", right: true, text: func(r row, _ time.Time) string { return human.Bytes(r.of.Bytes) }},
	{name: "OLDEST", right: true, text: func(r row, _ time.Time) string { return oldestText(r.of) }},
	{name: "P50", right: true, text: func(r row, _ time.Time) string { return human.Duration(r.of.P50) }},
	{name: "P99", right: true, text: func(r row, _ time.Time) string { return human.Duration(r.of.P99) }},
	{name: "DRAIN", right: true, text: func(r row, _ time.Time) string { return drainText(r.of) }},
	{name: "DROPPED", right: true, text: func(r row, _ time.Time) string { return strconv.FormatUint(r.of.Dropped, 10) }},
	{name: "REFUSED", right: true, text: func(r row, _ time.Time) string { return strconv.FormatUint(r.of.Refused, 10) }},
	{name: "THROTTLED", right: true, text: func(r row, now time.Time) string { return throttledText(r.of, now) }},
	{name: holdColumn, text: func(r row, now time.Time) string { return cmp.Or(holdText(r.of, now), shadowText(r.of)) },
		end: func(r row, now time.Time) string { return human.HoldLeft(r.of.WaitsFor, now) }},
}

// The columns whose widths give way, and how narrow they may be.
const (
	classColumn = "CLASS"
	holdColumn  = "WAITS FOR"
	leastClass  = 12
	leastHold   = 14
)

// spare are the columns to omit in this order if they leave the last column less than hold.
var spare = []struct {
	name string
	hold int
}{
	{"CEIL", 24}, {"BACKLOG", 24}, {"P50", 24}, {"THROTTLED", 24}, {"LOAD", 24},
	{"DROPPED", leastHold}, {"REFUSED", leastHold}, {"P99", leastHold}, {"DRAIN", leastHold}, {"OLDEST", leastHold}, {"ITEMS", leastHold},
}

// An order of the classes. The largest figures come first.
type order struct {
	name    string // of the column
	compare func(a, b *web.Class) int
}

// orders are those that the key s goes through. In the first one, each class is under its parent.
var orders = []order{
	{name: classColumn, compare: func(a, b *web.Class) int { return strings.Compare(a.Name, b.Name) }},
	{name: "ITEMS", compare: func(a, b *web.Class) int { return cmp.Compare(b.Items, a.Items) }},
	{name: "OLDEST", compare: func(a, b *web.Class) int { return cmp.Compare(b.Oldest, a.Oldest) }},
	{name: "LOAD", compare: func(a, b *web.Class) int { return cmp.Compare(b.Load, a.Load) }},
	{name: "P99", compare: func(a, b *web.Class) int { return cmp.Compare(b.P99, a.P99) }},
	{name: "DRAIN", compare: func(a, b *web.Class) int { return cmp.Compare(b.Drain, a.Drain) }},
	{name: "DROPPED", compare: func(a, b *web.Class) int { return cmp.Compare(b.Dropped, a.Dropped) }},
	{name: "REFUSED", compare: func(a, b *web.Class) int { return cmp.Compare(b.Refused, a.Refused) }},
	{name: "THROTTLED", compare: func(a, b *web.Class) int { return cmp.Compare(b.Throttled, a.Throttled) }},
}

// gap is what stands between two columns.
const gap = 2

// layout returns the columns that fit into a width, and how wide each is, given how wide they want to
// be. What a text column does not need, the last one gets.
func layout(natural map[string]int, width int) (shown []column, widths []int) {
	shown = slices.Clone(columns)
	room := func() int {
		left := width - leastClass - leastHold - gap*(len(shown)-1)
		for _, c := range shown {
			if c.right {
				left -= natural[c.name]
			}
		}
		return left
	}
	for _, s := range spare {
		if room() < s.hold-leastHold {
			shown = slices.DeleteFunc(shown, func(c column) bool { return c.name == s.name })
		}
	}
	class := min(max(natural[classColumn], leastClass), leastClass+max(room(), 0))
	for _, c := range shown {
		switch c.name {
		case classColumn:
			widths = append(widths, class)
		case holdColumn:
			widths = append(widths, max(leastHold+room()-(class-leastClass), 0))
		default:
			widths = append(widths, natural[c.name])
		}
	}
	return shown, widths
}

// grow returns the widths that the columns want: as wide as the widest text so far.
func grow(widths map[string]int, rows []row, now time.Time) map[string]int {
	if widths == nil {
		widths = map[string]int{}
		for _, c := range columns {
			widths[c.name] = human.Width(c.name)
		}
	}
	for _, r := range rows {
		for _, c := range columns {
			widths[c.name] = max(widths[c.name], human.Width(c.text(r, now)))
		}
	}
	return widths
}

// rateText returns the rate of a class. A "*" marks a class that `shaper set` has changed.
func rateText(c *web.Class) string {
	if c.Set {
		return "*" + c.Rate
	}
	return c.Rate
}

// oldestText returns how long the item has waited that has waited longest in a class.
func oldestText(c *web.Class) string {
	if c.Items == 0 {
		return "-"
	}
	return human.Duration(c.Oldest)
}

// drainText returns when all that waits in a class and beneath it will have left.
func drainText(c *web.Class) string {
	if c.Items == 0 {
		return "-"
	}
	return human.Duration(c.Drain)
}

// percent prints a part of a limit. The first item of a class of one an hour is far above it.
func percent(part float64) string {
	if part >= 10 {
		return ">999%"
	}
	return fmt.Sprintf("%.0f%%", 100*part)
}

// throttledText returns how often the provider has said "too fast", and how long it pauses a class.
func throttledText(c *web.Class, now time.Time) string {
	text := strconv.FormatUint(c.Throttled, 10)
	if left := c.PausedUntil.Sub(now); left > 0 {
		text += ", pauses " + human.Duration(stats.Seconds(left.Round(100*time.Millisecond)))
	}
	return text
}

// shadowText says of a class in the shadow that nothing waits for it.
func shadowText(c *web.Class) string {
	if c.Shadow {
		return "- (shadow)"
	}
	return ""
}

// holdText returns what the next item of a class waits for, and for how long.
func holdText(c *web.Class, now time.Time) string {
	if c.WaitsFor == nil {
		return ""
	}
	text := c.WaitsFor.Words()
	if c.WaitsFor.Class != c.Name {
		text += " of " + c.WaitsFor.Class
	}
	return text + human.HoldLeft(c.WaitsFor, now)
}

// cell returns what a row has in the column, as wide as that.
func (c column) cell(r row, now time.Time, width int) string {
	text := c.text(r, now)
	if c.end != nil {
		end := c.end(r, now)
		text = human.CutBefore(strings.TrimSuffix(text, end), end, width)
	}
	return human.Fit(text, width, c.right)
}

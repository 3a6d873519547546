package simulate

import (
	"fmt"
	"html"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shaper/stats"
	"shaper/unit"
)

// Measures of a plot, in pixels.
const (
	panelWidth  = 300
	panelHeight = 264
	axisLeft    = 44 // from here on, positions within a panel
	axisRight   = 290
	curvesTop   = 44
	curvesEnd   = 164
	backlogTop  = 184
	backlogEnd  = 234
	legend      = 28
	maxColumns  = 3
	maxTitle    = 36 // characters
)

// The colours can be read on white and on black. Text and axes follow the viewer's scheme.
const style = `<style>
text { fill: #333; font: 11px sans-serif }
.title { font-weight: bold; font-size: 12px }
.axis { stroke: #999; fill: none }
.offered { stroke: #d9822b; fill: none; stroke-width: 1.6 }
.left { stroke: #2b7fd9; fill: none; stroke-width: 1.6 }
.backlog { fill: #8a63d2; fill-opacity: .55; stroke: none }
@media (prefers-color-scheme: dark) { text { fill: #ccc } .axis { stroke: #777 } }
</style>
`

// Plot writes an SVG image with a panel for each class that was offered something. A panel
// shows what arrived and what left since the beginning, and below that what waited; of a shared class
// of a fleet, also what left of each member. With several reports, the panels of one class stand side
// by side. The reports must come from runs with Curves.
func Plot(w io.Writer, reports ...*Report) error {
	panels := panelsOf(reports)
	columns := min(max(len(panels), 1), maxColumns)
	if len(reports) > 1 {
		columns = len(reports)
	}
	rows := (len(panels) + columns - 1) / columns
	width, height := columns*panelWidth, legend+rows*panelHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d">`+"\n%s", width, height, style)
	drawLegend(&b, reports)
	for i, p := range panels {
		fmt.Fprintf(&b, "<g transform=\"translate(%d %d)\">\n", i%columns*panelWidth, legend+i/columns*panelHeight)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// A panel shows one class.
type panel struct {
	title, subtitle string
	kind            unit.Kind
	curve
	members []curve // of a shared class
	period  time.Duration
}

// panelsOf returns one panel of each report for every class that had something to do in any
// report.
func panelsOf(reports []*Report) (panels []panel) {
	period, seen := longest(reports), map[string]bool{}
	for _, r := range reports {
		for _, c := range r.Classes {
			if c.curve == nil || seen[c.Name] {
				continue
			}
			seen[c.Name] = true
			for _, r := range reports {
				panels = append(panels, r.panel(c.Name, period, len(reports) > 1))
			}
		}
	}
	return panels
}

func (r *Report) panel(name string, period time.Duration, several bool) panel {
	p := panel{title: name, subtitle: "no such class", period: period}
	if c, ok := r.Class(name); ok {
		p.subtitle, p.kind = c.Algorithm+", "+c.Limit.Text, c.kind
		if c.curve != nil {
			p.curve = c.curve.filled()
		}
		p.members = r.membersOf(c)
	}
	if several {
		p.title = filepath.Base(r.Policy) + ": " + name
	}
	return p
}

// membersOf returns what each member of a fleet did with a shared class.
func (r *Report) membersOf(c Class) (all []curve) {
	for _, m := range r.Members {
		if own, _ := m.Class(c.Name); c.Shared != nil && own.curve != nil {
			all = append(all, own.curve.filled())
		}
	}
	return all
}

// longest returns the period of the longest run: all panels have the same scale of time.
func longest(reports []*Report) time.Duration {
	period := stats.Seconds(time.Microsecond)
	for _, r := range reports {
		period = max(period, r.Period)
	}
	return time.Duration(period)
}

func drawLegend(b *strings.Builder, reports []*Report) {
	for i, class := range []string{"offered", "left"} {
		fmt.Fprintf(b, `<path class="%s" d="M%d 14h24"/>`+"\n", class, axisLeft+i*90)
		text(b, axisLeft+30+i*90, 18, "start", "", class)
	}
	fmt.Fprintf(b, `<rect class="backlog" x="%d" y="8" width="24" height="11"/>`+"\n", axisLeft+160)
	text(b, axisLeft+190, 18, "start", "", "waiting")
	if slices.ContainsFunc(reports, func(r *Report) bool { return len(r.Members) > 0 }) {
		text(b, axisLeft, 31, "start", "", "thin: left, of each member")
	}
}

func (p panel) draw(b *strings.Builder) {
	title := p.title
	if runes := []rune(title); len(runes) > maxTitle {
		title = string(runes[:maxTitle-1]) + "…"
	}
	text(b, axisLeft, 18, "start", ` class="title"`, title)
	text(b, axisLeft, 33, "start", "", p.subtitle)
	var offered, waiting uint64
	for _, s := range p.steps {
		offered, waiting = max(offered, s.Last.Offered), max(waiting, s.Most)
	}
	curves := p.scale(offered, curvesTop, curvesEnd)
	curves.axes(b, p.kind)
	offers, departures := func(s step) uint64 { return s.Last.Offered }, func(s step) uint64 { return s.Last.Departed }
	curves.stairs(b, `class="offered"`, p.curve, offers)
	curves.stairs(b, `class="left"`, p.curve, departures)
	for i, m := range p.members {
		curves.stairs(b, fmt.Sprintf(`style="fill: none; stroke: hsl(%d 70%% 45%%); stroke-width: .8"`, 137*i%360), m, departures)
	}
	backlog := p.scale(waiting, backlogTop, backlogEnd)
	backlog.area(b, "backlog", p.curve)
	backlog.axes(b, p.kind)
	backlog.times(b, p.period)
}

// A scale turns times and amounts into pixels.
type scale struct {
	top, end int
	most     float64
	x, y     float64 // pixels per nanosecond, and per unit
}

func (p panel) scale(most uint64, top, end int) scale {
	high := max(float64(most), 1)
	return scale{top, end, high, (axisRight - axisLeft) / float64(p.period), float64(end-top) / high}
}

func (s scale) at(t time.Duration) float64 { return axisLeft + float64(t)*s.x }
func (s scale) of(n float64) float64       { return float64(s.end) - n*s.y }

// stairs draws a value that grows, with a step whenever it does.
func (s scale) stairs(b *strings.Builder, attributes string, c curve, value func(step) uint64) {
	fmt.Fprintf(b, `<path %s d="M%d %.1f`, attributes, axisLeft, s.of(0))
	last := uint64(0)
	for i, step := range c.steps {
		if v := value(step); v != last {
			fmt.Fprintf(b, "H%.1fV%.1f", s.at(time.Duration(i)*c.step), s.of(float64(v)))
			last = v
		}
	}
	fmt.Fprintf(b, "H%d\"/>\n", axisRight)
}

// area draws the most that waited in each step.
func (s scale) area(b *strings.Builder, class string, p curve) {
	fmt.Fprintf(b, `<path class="%s" d="M%d %.1f`, class, axisLeft, s.of(0))
	last := uint64(0)
	for i, step := range p.steps {
		if step.Most != last {
			fmt.Fprintf(b, "H%.1fV%.1f", s.at(time.Duration(i)*p.step), s.of(float64(step.Most)))
			last = step.Most
		}
	}
	if n := len(p.steps); n > 0 && p.steps[n-1].Last.Waiting != last {
		last = p.steps[n-1].Last.Waiting
		fmt.Fprintf(b, "H%.1fV%.1f", min(s.at(time.Duration(n)*p.step), axisRight), s.of(float64(last)))
	}
	fmt.Fprintf(b, "H%dV%dz\"/>\n", axisRight, s.end)
}

// axes draws the axes, and the amount at the top.
func (s scale) axes(b *strings.Builder, kind unit.Kind) {
	fmt.Fprintf(b, `<path class="axis" d="M%d %dV%dH%d"/>`+"\n", axisLeft, s.top, s.end, axisRight)
	most := fmt.Sprintf("%.0f", s.most)
	if kind == unit.Bytes {
		most = formatBytes(s.most)
	}
	text(b, axisLeft-5, s.top+8, "end", "", most)
	text(b, axisLeft-5, s.end, "end", "", "0")
}

// formatBytes formats bytes in few characters.
func formatBytes(v float64) string {
	prefixes := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; v >= 1000 && i < len(prefixes)-1; i++ {
		v /= 1000
	}
	return fmt.Sprintf("%.3g%s", v, prefixes[i])
}

// times writes times below the axis: seconds, at multiples of 1, 2 or 5 times a power of ten; or
// hours, if there are some.
func (s scale) times(b *strings.Builder, period time.Duration) {
	of, unit, step := period.Seconds(), "s", 0.
	if step = roundStep(of); period >= 6*time.Hour {
		of, unit = period.Hours(), "h"
		step = hourStep(of)
	}
	for i := 0; float64(i)*step <= of*1.0001; i++ {
		x := axisLeft + float64(i)*step/of*float64(period)*s.x
		fmt.Fprintf(b, `<path class="axis" d="M%.1f %dv4"/>`+"\n", x, s.end)
		text(b, int(x), s.end+16, "middle", "", fmt.Sprintf("%.6g%s", float64(i)*step, unit))
	}
}

// roundStep returns 1, 2 or 5 times a power of ten, so that at least three of it fit into a period.
func roundStep(period float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(period/3)))
	for _, factor := range []float64{5, 2} {
		if period/(step*factor) >= 3 {
			return step * factor
		}
	}
	return step
}

// hourStep is roundStep for hours: parts of a day, or days.
func hourStep(period float64) float64 {
	for _, step := range []float64{1, 2, 3, 6, 12, 24} {
		if period/step <= 8 {
			return step
		}
	}
	return 24 * max(math.Ceil(period/24/8), 1)
}

func text(b *strings.Builder, x, y int, anchor, attributes, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, attributes, html.EscapeString(s))
}

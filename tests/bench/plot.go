package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// panel is a part of the plot whose bars compare with each other.
type panel struct {
	title string
	bars  []bar
}

// bar shows the median of the rounds, and the lowest and highest round.
type bar struct {
	label            string
	own              bool // it is shaper's, and has another colour
	format           string
	low, median, top float64
}

// panels returns one panel for each kind of work. Kinds that only shaper can do share the
// panel of their group. The direct way has no bar: it would dwarf the others.
func panels(results []result) (all []panel) {
	shared := map[string]int{} // the panel of each group
	for _, r := range results {
		i := slices.IndexFunc(r.columns, func(c column) bool { return c.plotted })
		title := groups[r.group].title + ", " + r.label
		if len(r.ways) == 1 {
			title = groups[r.group].title
		}
		at, ok := shared[r.group]
		if !ok || len(r.ways) > 1 {
			at, shared[r.group] = len(all), len(all)
			all = append(all, panel{title: title + ": " + r.columns[i].name + better(r.columns[i])})
		}
		for _, row := range r.rows {
			if row.way.config == nil || len(row.rounds) == 0 {
				continue
			}
			values := row.column(i)
			b := bar{
				label: row.way.name, own: strings.HasPrefix(row.way.name, shaper.name), format: r.columns[i].format,
				low: slices.Min(values), median: median(values), top: slices.Max(values),
			}
			if len(r.ways) == 1 {
				b.label = r.label
			}
			all[at].bars = append(all[at].bars, b)
		}
	}
	return all
}

func better(c column) string {
	if c.lower {
		return " (less is better)"
	}
	return " (more is better)"
}

// Sizes in the plot, in pixels.
const (
	panelWidth = 460
	labelWidth = 170
	barWidth   = 210
	barHeight  = 18
	titleSpace = 30
	panelSpace = 14
)

func (p panel) height() int { return titleSpace + barHeight*len(p.bars) + panelSpace }

// plot draws all panels as SVG in two columns. Each panel goes to the shorter column.
func plot(results []result) string {
	var b strings.Builder
	heights := [2]int{10, 10}
	for _, p := range panels(results) {
		column := 0
		if heights[1] < heights[0] {
			column = 1
		}
		p.draw(&b, 10+column*(panelWidth+20), heights[column])
		heights[column] += p.height()
	}
	width, height := 2*panelWidth+40, max(heights[0], heights[1])
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
`, width, height) + b.String() + "</svg>\n"
}

func (p panel) draw(b *strings.Builder, x, y int) {
	most := 0.
	for _, bar := range p.bars {
		most = max(most, bar.top)
	}
	text(b, x, y+18, "start", `font-weight="bold"`, p.title)
	for i, bar := range p.bars {
		bar.draw(b, x, y+titleSpace+i*barHeight, barWidth/max(most, 1e-9))
	}
}

// draw draws a bar as long as the median, and a line from the lowest to the highest round.
func (r bar) draw(b *strings.Builder, x, y int, scale float64) {
	color := "#9db4c8"
	if r.own {
		color = "#d9822b"
	}
	text(b, x+labelWidth-6, y+13, "end", "", r.label)
	x += labelWidth
	middle := float64(y) + barHeight/2
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y+2, r.median*scale, barHeight-4, color)
	fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1f" stroke="#333"/>`+"\n", float64(x)+r.low*scale, middle, float64(x)+r.top*scale)
	text(b, x+int(r.top*scale)+6, y+13, "start", "", number(r.format, r.median))
}

func text(b *strings.Builder, x, y int, anchor, style, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, style, html.EscapeString(s))
}

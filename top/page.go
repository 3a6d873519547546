package top

import (
	"math"
	"strings"
	"time"

	"shaper/daemon"
	"shaper/human"
	"shaper/unit"
)

// pageLines returns the page of the class that is open: why it waits, its curves, its figures.
func (m *model) pageLines() (all []line) {
	c := m.page.Class
	switch {
	case m.pageAt.IsZero():
		return nil
	case c == nil:
		return []line{text("There is no class "+m.open+".", plain)}
	}
	look := plain
	if c.BacklogItems > 0 {
		look = warm
	}
	all = append(paragraph(strings.TrimSpace(m.page.Why), m.width, look), nil)
	all = append(all, m.curves(c)...)
	all = append(all, nil)
	return append(all, factLines(m.facts(*c, m.now), m.width)...)
}

// curves returns the curves of a class side by side: those of the hour that the daemon keeps, or of the
// time since the page was opened.
func (m *model) curves(c *daemon.Class) []line {
	p := hour(&m.page, m.now)
	if len(p.times) == 0 {
		p = m.seen
	}
	label := "the last hour"
	if from := p.times[0]; from.After(m.now.Add(-59 * time.Minute)) {
		label = "since " + clock(from, m.now)
	}
	limit := c.Rate
	if c.Ceil != nil {
		limit = *c.Ceil
	}
	size := chartSize{(m.width - gap*(figures-1)) / figures, min(max((m.height-14)/2, 3), 12)}
	charts := [figures][]string{
		size.chart("NOW", p.times, p.values[sent], limit.PerSecond, rateLike(c)),
		size.chart("ITEMS", p.times, p.values[waiting], 0, short),
		size.chart("DROPPED, REFUSED", p.times, p.values[lost], 0, func(v float64) string { return short(v) + "/s" }),
	}
	all := []line{text(label, bold)}
	for i := range charts[0] {
		var l line
		for j, chart := range charts {
			if j > 0 {
				l = append(l, span{strings.Repeat(" ", gap), plain})
			}
			l = append(l, span{chart[i], plain})
		}
		all = append(all, l)
	}
	return all
}

// chartSize is the size of a curve, without the lines above and below it.
type chartSize struct{ width, height int }

// chart returns a curve between its name and its last value. The scale reaches at least to a limit.
func (s chartSize) chart(name string, times []time.Time, values []float64, limit float64, print func(float64) string) []string {
	top := max(highest(values), limit)
	last := "-"
	for _, v := range values {
		if !math.IsNaN(v) {
			last = print(v)
		}
	}
	all := []string{human.Fit(name+", top "+print(top), s.width, false)}
	all = append(all, plot(sampled(times, values, times[0], times[len(times)-1], s.width), top, s.height)...)
	return append(all, human.Fit("last "+last, s.width, true))
}

// rateLike returns what prints a measured rate as the class prints its own.
func rateLike(c *daemon.Class) func(float64) string {
	limit, err := unit.ParseRate(c.Rate.Text)
	if err != nil {
		return func(v float64) string { return short(v) + " " + c.Rate.Unit + "/s" }
	}
	return limit.Like
}

// factLines returns names and texts in as many columns as there is room for.
func factLines(facts [][2]string, width int) (all []line) {
	const name, cell = 18, 56
	perLine, used := max(width/cell, 1), 0
	for _, f := range facts {
		title := span{human.Fit(f[0], name, false), faint}
		if human.Width(f[1]) > cell-name-gap {
			for i, part := range strings.Split(human.Wrap(f[1], width-name, "", ""), "\n") {
				if i > 0 {
					title.text = strings.Repeat(" ", name)
				}
				all, used = append(all, line{title, {part, plain}}), perLine
			}
			continue
		}
		if used %= perLine; used == 0 {
			all = append(all, nil)
		}
		l := &all[len(all)-1]
		*l = append(*l, title, span{human.Fit(f[1], cell-name, false), plain})
		used++
	}
	return all
}

package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Measures of the plot, in pixels. A decade is a factor of ten.
const (
	left, top   = 60, 20
	decadeX     = 90
	decadeY     = 50
	legendSpace = 260
	lineHeight  = 14
)

// The plot shows numbers up to 10^mostX, and times from 10^leastY to 10^mostY ns.
const mostX, leastY, mostY = 6, 2, 10

// plot draws the processor time of each work, for the most processors, on two logarithmic axes.
func (r *report) plot() string {
	var b strings.Builder
	width, height := left+mostX*decadeX+legendSpace, top+(mostY-leastY)*decadeY+40
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11">
<rect width="100%%" height="100%%" fill="#fff"/>
`, width, height)
	for n := range mostX + 1 {
		x := left + n*decadeX
		fmt.Fprintf(&b, `<path d="M%d %dV%d" stroke="#ddd"/><text x="%[1]d" y="%[4]d" text-anchor="middle">%.0[5]f</text>`+"\n", x, top, top+(mostY-leastY)*decadeY, height-20, math.Pow10(n))
	}
	for e := leastY; e <= mostY; e++ {
		y := top + (mostY-e)*decadeY
		fmt.Fprintf(&b, `<path d="M%d %dH%d" stroke="#ddd"/><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left, y, left+mostX*decadeX, left-6, y+4, seconds(math.Pow10(e)))
	}
	r.curves(&b)
	return b.String() + "</svg>\n"
}

// curves draws the curves, the highest first, and their names beside them in the same order.
func (r *report) curves(b *strings.Builder) {
	var shown []*series
	for _, s := range r.series {
		if s.processors == r.mostProcessors() {
			shown = append(shown, s)
		}
	}
	slices.SortStableFunc(shown, func(a, b *series) int { return cmp.Compare(b.last(), a.last()) })
	for i, s := range shown {
		color := fmt.Sprintf("hsl(%d 70%% 40%%)", 137*i%360)
		path, separator := "", "M"
		for _, p := range s.points {
			if ns, ok := p.median("cpu-ns/op"); ok {
				path += fmt.Sprintf("%s%.1f %.1f", separator, left+decadeX*math.Log10(float64(p.n)), top+decadeY*(mostY-math.Log10(max(ns, 1))))
				separator = "L"
			}
		}
		fmt.Fprintf(b, `<path d="%s" stroke="%s" fill="none" stroke-width="1.6"/>`+"\n", path, color)
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">%s, %s</text>`+"\n", left+mostX*decadeX+10, top+10+i*lineHeight, color, html.EscapeString(s.work), html.EscapeString(s.of))
	}
}

func (s *series) last() float64 {
	v, _ := s.points[len(s.points)-1].median("cpu-ns/op")
	return v
}

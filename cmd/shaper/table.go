package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"shaper/human"
)

// table prints rows in aligned columns. If a header begins with ">", its column holds figures:
// they are aligned to the right and never cut. The ">" is not printed.
type table struct {
	header []string
	rows   [][]cell
	// spare names the columns to omit in this order if there is no room for all.
	spare []string
}

// A cell is a text with an end that stays if there is no room for all.
type cell struct{ text, end string }

func (c cell) width() int { return human.Width(c.text) + human.Width(c.end) }

func (t *table) add(cells ...string) {
	row := make([]cell, len(cells))
	for i, text := range cells {
		row[i].text = text
	}
	t.rows = append(t.rows, row)
}

// drop removes columns by their names without the ">".
func (t *table) drop(names ...string) {
	for i := len(t.header) - 1; i >= 0; i-- {
		if !slices.Contains(names, nameOf(t.header[i])) {
			continue
		}
		t.header = slices.Delete(t.header, i, i+1)
		for j := range t.rows {
			t.rows[j] = slices.Delete(t.rows[j], i, i+1)
		}
	}
}

// nameOf returns a header without the ">".
func nameOf(header string) string { return strings.TrimPrefix(header, ">") }

func isFigure(header string) bool { return strings.HasPrefix(header, ">") }

const (
	gap        = "  " // between two columns
	leastWidth = 12   // of a text, while there are columns to omit
	leastBegin = 8    // of a text before its end, likewise
	leastCut   = 4    // of a text in any case
)

// write prints the table no wider than w. If there is no room, it cuts texts, which "…" shows, and
// omits spare columns, which a line below names.
func (t *table) write(w io.Writer, indent string) {
	width, bounded := widthOf(w)
	var hidden []string
	if bounded {
		hidden = t.hide(width - len(indent))
	}
	widths := t.widths()
	if bounded && !t.fit(widths, width-len(indent), leastWidth) {
		t.fit(widths, width-len(indent), leastCut)
	}
	names := make([]cell, len(t.header))
	for i, h := range t.header {
		names[i].text = nameOf(h)
	}
	for _, row := range append([][]cell{names}, t.rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = human.Fit(human.CutBefore(c.text, c.end, widths[i]), widths[i], isFigure(t.header[i]))
		}
		fmt.Fprintln(w, strings.TrimRight(indent+strings.Join(cells, gap), " "))
	}
	if len(hidden) > 0 {
		fmt.Fprintf(w, "\n%s\n", human.Wrap("no room for "+strings.Join(hidden, ", ")+"; a wider terminal shows more, or COLUMNS=200", width, indent, indent))
	}
}

// hide removes spare columns until the rest has room, and returns their names.
func (t *table) hide(width int) (hidden []string) {
	for _, name := range t.spare {
		if t.fit(t.widths(), width, leastWidth) {
			return hidden
		}
		before := len(t.header)
		if t.drop(name); len(t.header) < before {
			hidden = append(hidden, name)
		}
	}
	return hidden
}

// widths returns the widths of the columns if nothing is cut, in characters.
func (t *table) widths() []int {
	widths := make([]int, len(t.header))
	for i, h := range t.header {
		widths[i] = human.Width(nameOf(h))
		for _, row := range t.rows {
			widths[i] = max(widths[i], row[i].width())
		}
	}
	return widths
}

// leasts returns how narrow each column may be: least, or as wide as the widest end and a part of the text.
func (t *table) leasts(least int) []int {
	leasts := make([]int, len(t.header))
	for i := range leasts {
		leasts[i] = least
		for _, row := range t.rows {
			if n := human.Width(row[i].end); n > 0 {
				leasts[i] = max(leasts[i], min(least, leastBegin)+n)
			}
		}
	}
	return leasts
}

// fit narrows the widest texts until the columns have room in width, and reports whether they do.
// It narrows no text below least, and cuts off no end.
func (t *table) fit(widths []int, width, least int) bool {
	over := len(gap)*(len(widths)-1) - width
	for _, n := range widths {
		over += n
	}
	leasts := t.leasts(least)
	for ; over > 0; over-- {
		widest := -1
		for i, n := range widths {
			if !isFigure(t.header[i]) && n > leasts[i] && (widest < 0 || n > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

// writeWrapped prints lines no longer than w is wide. It indents the rest of a wrapped line. If w
// is not a terminal, the lines stay whole, for programs to read. What does more to a terminal than
// appear is replaced.
func writeWrapped(w io.Writer, text string) {
	width, bounded := widthOf(w)
	for line := range strings.Lines(text) {
		line = human.Clean(strings.TrimSuffix(line, "\n"))
		if bounded {
			indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
			line = human.Wrap(line, width, indent, indent+"    ")
		}
		fmt.Fprintln(w, line)
	}
}

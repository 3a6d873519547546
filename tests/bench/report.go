package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// column returns what the rounds gave for one column.
func (r row) column(i int) (values []float64) {
	for _, round := range r.rounds {
		values = append(values, round[i])
	}
	return values
}

// reference returns the row of shaper, with which the others are compared.
func (r result) reference() (row, bool) {
	for _, row := range r.rows {
		if row.way.name == shaper.name && row.failed == nil {
			return row, true
		}
	}
	return row{}, false
}

// ratio is the median, over the rounds, of shaper's value divided by another's
// of the same round.
func ratio(reference, other row, column int) float64 {
	return median(ratios(reference, other, column))
}

func ratios(reference, other row, column int) (all []float64) {
	for i := range min(len(reference.rounds), len(other.rounds)) {
		all = append(all, reference.rounds[i][column]/other.rounds[i][column])
	}
	return all
}

// oneLine shows one measurement.
func oneLine(columns []column, values []float64) string {
	var parts []string
	for i, c := range columns {
		parts = append(parts, c.name+" "+number(c.format, values[i]))
	}
	return strings.Join(parts, "  ")
}

// number writes a value, with its thousands apart.
func number(format string, v float64) string {
	if v != v { // not a number: there is none
		return "–"
	}
	text := fmt.Sprintf(format, v)
	digits := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(text)
	}
	for at := digits - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// tables renders all results, one table for each group.
func tables(results []result) string {
	var b strings.Builder
	group := ""
	for _, r := range results {
		if r.group != group {
			group = r.group
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", groups[group].title, groups[group].about, header(r.columns))
		}
		for _, row := range r.rows {
			b.WriteString(line(r, row))
		}
	}
	return b.String()
}

func header(columns []column) string {
	names, rules := []string{"work", "way"}, []string{"---", "---"}
	add := func(name string) {
		names, rules = append(names, name), append(rules, "--:")
	}
	for _, c := range columns {
		add(c.name)
		if c.ratio {
			add("shaper ÷ this")
		}
	}
	return "| " + strings.Join(names, " | ") + " |\n|" + strings.Join(rules, "|") + "|\n"
}

func line(r result, row row) string {
	cells := []string{r.label, row.way.name}
	if row.failed != nil {
		cells = append(cells, "not measured: "+oneRow(row.failed.Error()))
		return "| " + strings.Join(cells, " | ") + " |\n"
	}
	reference, compared := r.reference()
	for i, c := range r.columns {
		cells = append(cells, number(c.format, median(row.column(i))))
		if !c.ratio {
			continue
		}
		shown := ""
		if compared && row.way.name != shaper.name {
			shown = number("%.2f", ratio(reference, row, i))
		}
		cells = append(cells, shown)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// oneRow makes a message fit into a row of a table.
func oneRow(message string) string {
	return strings.NewReplacer("|", "/", "\n", " ").Replace(message)
}

// write writes the report, and the plot beside it.
func write(path, machine string, results []result) error {
	svg := strings.TrimSuffix(path, filepath.Ext(path)) + ".svg"
	text := fmt.Sprintf(introduction, machine, filepath.Base(svg)) + tables(results) + method
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(svg, []byte(plot(results)), 0o644)
}

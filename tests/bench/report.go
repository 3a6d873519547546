package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// reference returns the row of shaper. It returns false if shaper was not measured.
func (r result) reference() (row, bool) {
	for _, row := range r.rows {
		if row.way.name == shaper.name && row.failed == nil {
			return row, true
		}
	}
	return row{}, false
}

// ratio returns the median of ratios.
func ratio(reference, other row, column int) float64 {
	return median(ratios(reference, other, column))
}

// ratios divides, round by round, a column of the reference by the same column of the other row.
func ratios(reference, other row, column int) (all []float64) {
	for i := range min(len(reference.rounds), len(other.rounds)) {
		all = append(all, reference.rounds[i][column]/other.rounds[i][column])
	}
	return all
}

// oneLine formats the values of one measurement.
func oneLine(columns []column, values []float64) string {
	var parts []string
	for i, c := range columns {
		parts = append(parts, c.name+" "+number(c.format, values[i]))
	}
	return strings.Join(parts, "  ")
}

// tables formats all results, with one table for each group.
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
		cells = append(cells, "not measured: "+cellText(row.failed.Error()))
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

// write writes the report, and the plot beside it.
func write(path, machine string, results []result) error {
	svg := strings.TrimSuffix(path, filepath.Ext(path)) + ".svg"
	text := fmt.Sprintf(introduction, machine, filepath.Base(svg)) + tables(results) + method
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(svg, []byte(plot(results)), 0o644)
}

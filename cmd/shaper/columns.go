package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"shaper/human"
	"shaper/policy"
	"shaper/stats"
)

// A column shows one thing of each row.
type column[T any] struct {
	name string
	text func(T) string
	end  func(T) string  // the end of text, which is never cut; nil: it has none
	by   func(T) float64 // the figure to sort by; nil: the column is text
	has  func(T) bool    // whether a row has the column; nil: all rows have it
}

// tableOf returns a table of rows without the columns that no row has. Spare names the columns
// that the table may omit; see table.
func tableOf[T any](columns []column[T], rows []T, spare ...string) *table {
	t := &table{spare: spare}
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool {
		return c.has != nil && !slices.ContainsFunc(rows, c.has)
	})
	for _, c := range columns {
		if c.by != nil {
			t.header = append(t.header, ">"+c.name)
		} else {
			t.header = append(t.header, c.name)
		}
	}
	for _, row := range rows {
		var cells []cell
		for _, c := range columns {
			cells = append(cells, c.cell(row))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

// cell returns what a row has in the column.
func (c column[T]) cell(row T) cell {
	one := cell{text: c.text(row)}
	if c.end != nil {
		one.end = c.end(row)
		one.text = strings.TrimSuffix(one.text, one.end)
	}
	return one
}

// sortFlag returns --sort, whose value is an order.
func sortFlag() cli.Flag {
	return &cli.StringFlag{Name: "sort", Usage: "sort by a `COLUMN`, the largest figures first; -COLUMN reverses the order"}
}

// order is the value of --sort: the key of a column, with "-" before it to reverse the order. The
// zero order does not sort.
type order string

// sorted returns the rows in an order, or an error if there is no such column. Rows that are equal
// stay in their order.
func sorted[T any](columns []column[T], rows []T, by order) ([]T, error) {
	if by == "" {
		return rows, nil
	}
	name, backwards := strings.CutPrefix(string(by), "-")
	i := slices.IndexFunc(columns, func(c column[T]) bool { return by.isBy(c.name) })
	if i < 0 {
		keys := make([]string, len(columns))
		for i, c := range columns {
			keys[i] = keyOf(c.name)
		}
		return nil, usageError("--sort: there is no column %q; %s", name, policy.Hint(name, "columns", keys))
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b T) int { return columns[i].compare(a, b, backwards) })
	return rows, nil
}

// keyOf returns the name of a column on the command line.
func keyOf(name string) string { return strings.ReplaceAll(strings.ToLower(name), " ", "-") }

// isBy reports whether a column of a name decides the order.
func (by order) isBy(name string) bool {
	return keyOf(name) == strings.ToLower(strings.TrimPrefix(string(by), "-"))
}

// compare compares two rows; negative means that a comes first. The largest figure comes first,
// and texts come in alphabetical order; backwards reverses both. Rows without the column come
// last in any case.
func (c column[T]) compare(a, b T, backwards bool) int {
	hasA, hasB := c.has == nil || c.has(a), c.has == nil || c.has(b)
	switch {
	case hasA != hasB && hasA:
		return -1
	case hasA != hasB:
		return 1
	case !hasA:
		return 0
	case backwards:
		a, b = b, a
	}
	if c.by != nil {
		return cmp.Compare(c.by(b), c.by(a))
	}
	return strings.Compare(c.text(a), c.text(b))
}

// figureColumn returns a column of numbers that are printed as they are.
func figureColumn[T any, N int | int64 | uint64](name string, value func(T) N) column[T] {
	return column[T]{name: name, text: func(row T) string { return fmt.Sprint(value(row)) }, by: func(row T) float64 { return float64(value(row)) }}
}

// durationColumn returns a column of durations.
func durationColumn[T any](name string, value func(T) stats.Seconds) column[T] {
	return column[T]{name: name, text: func(row T) string { return human.Duration(value(row)) }, by: func(row T) float64 { return float64(value(row)) }}
}

// optional makes c a column that only some rows have. The others show "-" and are sorted last.
func optional[T any](has func(T) bool, c column[T]) column[T] {
	text := c.text
	c.has = has
	c.text = func(row T) string {
		if !has(row) {
			return "-"
		}
		return text(row)
	}
	return c
}

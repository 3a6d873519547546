package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"shaper/policy"
	"shaper/stats"
)

// A column shows one thing of each row.
type column[T any] struct {
	name string
	text func(T) string
	by   func(T) float64 // of a figure, what rows are sorted by; nil: the column is a text
	has  func(T) bool    // a column that no row has is left out; nil: all have it
}

// tableOf returns a table of rows. Columns that no row has are left out.
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
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.text(row))
		}
		t.add(cells...)
	}
	return t
}

func sortFlag() cli.Flag {
	return &cli.StringFlag{Name: "sort", Usage: "sort by a `COLUMN`, the largest figures first; -COLUMN for the other way round"}
}

// order is how rows are sorted: by a column, as it is written on the command line. The
// zero order leaves them as they are.
type order string

// sorted returns the rows in an order.
func sorted[T any](columns []column[T], rows []T, by order) ([]T, error) {
	if by == "" {
		return rows, nil
	}
	name, backwards := strings.CutPrefix(string(by), "-")
	i := slices.IndexFunc(columns, func(c column[T]) bool { return c.key() == strings.ToLower(name) })
	if i < 0 {
		keys := make([]string, len(columns))
		for i, c := range columns {
			keys[i] = c.key()
		}
		return nil, usageError("--sort: there is no column %q; %s", name, policy.Hint(name, "columns", keys))
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b T) int { return columns[i].compare(a, b, backwards) })
	return rows, nil
}

// key is the name of a column on the command line.
func (c column[T]) key() string { return strings.ReplaceAll(strings.ToLower(c.name), " ", "-") }

// compare orders two rows. Those that do not have the column are last in either order.
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

// figure is a column of numbers that are printed as they are.
func figure[T any, N int | int64 | uint64](name string, value func(T) N) column[T] {
	return column[T]{name: name, text: func(row T) string { return fmt.Sprint(value(row)) }, by: func(row T) float64 { return float64(value(row)) }}
}

// wait is a column of times.
func wait[T any](name string, value func(T) stats.Seconds) column[T] {
	return column[T]{name: name, text: func(row T) string { return duration(value(row)) }, by: func(row T) float64 { return float64(value(row)) }}
}

// where is a column that only some rows have: it is left out if none has it, and the
// others have "-" there, and are the last.
func where[T any](has func(T) bool, c column[T]) column[T] {
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

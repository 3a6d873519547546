package main

import (
	"fmt"
	"io"
	"strings"

	"shaper/policy"
)

// unifiedContext is how many equal lines a diff shows around each change.
const unifiedContext = 3

// writeUnified prints what differs between two texts, as diff -u does.
func writeUnified(w io.Writer, name, before, after string) {
	a, b := strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	fmt.Fprintf(w, "--- %s\n+++ %s (formatted)\n", name, name)
	edits := editsOf(a, b)
	for start := 0; start < len(edits); {
		if edits[start].op == ' ' {
			start++
			continue
		}
		end := start
		for equal := 0; end < len(edits) && equal <= 2*unifiedContext; end++ {
			if equal++; edits[end].op != ' ' {
				equal = 0
			}
		}
		first, last := max(0, start-unifiedContext), end
		for last > start && edits[last-1].op == ' ' {
			last--
		}
		writeHunk(w, edits[first:min(len(edits), last+unifiedContext)])
		start = end
	}
}

// An edit is a line that stays, goes or comes.
type edit struct {
	op     byte // ' ', '-' or '+'
	text   string
	before int // number of the line in the text before, from 1
	after  int
}

// editsOf returns the lines of two texts as edits.
func editsOf(a, b []string) (all []edit) {
	i, j := 0, 0
	until := func(k, l int) {
		for ; i < k; i++ {
			all = append(all, edit{'-', a[i], i + 1, j + 1})
		}
		for ; j < l; j++ {
			all = append(all, edit{'+', b[j], i + 1, j + 1})
		}
	}
	for _, same := range policy.LongestCommon(a, b) {
		until(same[0], same[1])
		all = append(all, edit{' ', a[i], i + 1, j + 1})
		i, j = i+1, j+1
	}
	until(len(a), len(b))
	return all
}

func writeHunk(w io.Writer, edits []edit) {
	before, after := 0, 0
	var lines strings.Builder
	for _, e := range edits {
		if e.text == "" { // what follows the last newline
			continue
		}
		if e.op != '+' {
			before++
		}
		if e.op != '-' {
			after++
		}
		lines.WriteString(string(e.op) + strings.TrimSuffix(e.text, "\n") + "\n")
	}
	fmt.Fprintf(w, "@@ -%d,%d +%d,%d @@\n%s", edits[0].before, before, edits[0].after, after, &lines)
}

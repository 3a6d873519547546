package main

import (
	"fmt"
	"strings"
)

// number formats a value, with commas between thousands. NaN becomes a dash.
func number(format string, v float64) string {
	if v != v { // NaN
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

// cellText makes a message fit into a cell of a table.
func cellText(message string) string {
	return strings.NewReplacer("|", "/", "\n", " ").Replace(message)
}

// lastLines returns the last n lines of a text as one line.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " / ")
}

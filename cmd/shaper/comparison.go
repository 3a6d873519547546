package main

import (
	"fmt"
	"io"
	"slices"

	"shaper/human"
	"shaper/simulate"
	"shaper/stats"
)

// comparison is the same workload through two policies.
type comparison struct {
	Policy *simulate.Report `json:"policy"`
	Other  *simulate.Report `json:"other"`
}

// figures are the figures of a class that a comparison shows.
var figures = []struct {
	name  string
	print func(float64) string
	value func(simulate.Class) float64
}{
	{"offered", whole, func(c simulate.Class) float64 { return float64(c.Offered.Items) }},
	{"left", whole, func(c simulate.Class) float64 { return float64(c.Left.Items) }},
	{"dropped", whole, func(c simulate.Class) float64 { return float64(itemsLost(c.Dropped)) }},
	{"refused", whole, func(c simulate.Class) float64 { return float64(itemsLost(c.Refused)) }},
	{"waiting", whole, func(c simulate.Class) float64 { return float64(c.Waiting.Items) }},
	{"p50", seconds, func(c simulate.Class) float64 { return float64(c.WaitP50) }},
	{"p99", seconds, func(c simulate.Class) float64 { return float64(c.WaitP99) }},
	{"max", seconds, func(c simulate.Class) float64 { return float64(c.WaitMax) }},
	{"used", percent, func(c simulate.Class) float64 { return c.Utilisation }},
	{"most", whole, func(c simulate.Class) float64 { return float64(c.MostWaiting.Items) }},
}

func whole(v float64) string       { return fmt.Sprintf("%.0f", v) }
func seconds(v float64) string     { return human.Duration(stats.Seconds(v)) }
func percent(share float64) string { return fmt.Sprintf("%.1f%%", share*100) }

// printComparison prints the figures of each class side by side. A class that only one policy has
// gets "-" for the other and for the difference.
func printComparison(w io.Writer, both comparison) {
	fmt.Fprintf(w, "A  %s\nB  %s\n\n", both.Policy.Policy, both.Other.Policy) // too long for the header
	t := table{header: []string{"CLASS", "", ">A", ">B", ">DIFFERENCE"}}
	for _, name := range classesOf(both) {
		a, inPolicy := both.Policy.Class(name)
		b, inOther := both.Other.Class(name)
		for _, f := range figures {
			row := []string{name, f.name, "-", "-", "-"}
			if inPolicy {
				row[2] = f.print(f.value(a))
			}
			if inOther {
				row[3] = f.print(f.value(b))
			}
			if inPolicy && inOther {
				row[4] = difference(f.value(b)-f.value(a), f.print)
			}
			t.add(row...)
			name = ""
		}
	}
	t.write(w, "")
}

// difference returns a difference with its sign; "0" if there is none.
func difference(d float64, print func(float64) string) string {
	switch {
	case d > 0:
		return "+" + print(d)
	case d < 0:
		return "-" + print(-d)
	}
	return "0"
}

// classesOf returns the names of the classes of both policies, those of the first before those
// that only the other has.
func classesOf(both comparison) (names []string) {
	for _, c := range slices.Concat(both.Policy.Classes, both.Other.Classes) {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

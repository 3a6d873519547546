package main

import (
	"fmt"
	"slices"
	"strings"
)

const introduction = `# Growth

This page shows what things cost as the numbers of classes, rules, keys and sessions grow. ` + "`make growth`" + ` runs the Go benchmarks named
BenchmarkGrowth and writes this page, which takes some minutes (here on: %s; shaper %s).
Each figure is a median. Times are processor time of all threads, so a busy machine changes them little, and changes the other figures not at
all. The last column compares the last two figures of a row, for numbers of which the last is ten times the other: 1 means that the cost does
not grow, and 10 that it grows as the number does.

![processor time against number](growth.svg)

- "item": an item enters its class, leaves and is charged. In "busy classes" all classes of the tree have something to send, in "one busy
  class" one has, and in "a tree 8 deep" the item passes eight classes. "of a key" is a session of one datagram, from one of that many clients
  of a class with ` + "`per`" + `.
- "class of a client": the rules give a new session its class. Each rule has a network of clients.
- "look at waiting keys": ` + "`classes`" + `, a scrape or the dashboard reads one class in which that many clients wait.
- "reload": the daemon reads, checks and compares the policy, in which one class has a new rate, and puts it in force. "new rate of a class" is
  the last step alone.
- "scrape": shaper answers Prometheus with all metrics, compressed.
- Sessions run over a network in memory, which needs no descriptors. "byte of one session" goes through the relay. The memory of a session
  includes both ends of its connections.
`

// column formats a value; unit is that of go test.
type column struct {
	title, unit string
	format      func(float64) string
}

var columns = []column{
	{"Processor time", "cpu-ns/op", seconds},
	{"Allocations", "allocs/op", func(v float64) string { return fmt.Sprintf("%.0f", v) }},
	{"Bytes of memory of each", "B/each", func(v float64) string { return fmt.Sprintf("%.0f", v) }},
}

// page has a table for each unit and number of processors. Only the time depends on the
// processors.
func (r *report) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, introduction, r.cpu, r.measured)
	most := r.mostProcessors()
	for processors := 1; processors <= most; processors++ {
		for _, c := range columns {
			if processors == most || c.unit == "cpu-ns/op" {
				r.table(&b, c, processors)
			}
		}
	}
	return b.String()
}

func (r *report) table(b *strings.Builder, c column, processors int) {
	numbers := []int{1, 10, 100, 1000, 10_000, 100_000, 1_000_000}
	head := "| | of |"
	for _, n := range numbers {
		head += fmt.Sprintf(" %d |", n)
	}
	rows := ""
	for _, s := range r.series {
		if s.processors != processors {
			continue
		}
		if row, ok := s.row(c, numbers); ok {
			rows += row
		}
	}
	if rows != "" {
		fmt.Fprintf(b, "\n## %s, GOMAXPROCS=%d\n\n%s last × 10 |\n|---|---|%s--:|\n%s", c.title, processors, head, strings.Repeat("--:|", len(numbers)), rows)
	}
}

// row returns false if the work has no such values.
func (s *series) row(c column, numbers []int) (string, bool) {
	cells, values := "", []float64(nil)
	for _, n := range numbers {
		at := slices.IndexFunc(s.points, func(p *point) bool { return p.n == n })
		cell := ""
		if at >= 0 {
			if v, ok := s.points[at].median(c.unit); ok {
				values, cell = append(values, v), c.format(v)
			}
		}
		cells += " " + cell + " |"
	}
	factor := ""
	if k := len(values); k > 1 && values[k-2] > 0 {
		factor = fmt.Sprintf("%.1f", values[k-1]/values[k-2])
	}
	return fmt.Sprintf("| %s | %s |%s %s |\n", s.work, s.of, cells, factor), len(values) > 0
}

// Command tally reads the output of `go test -json` and prints a summary: a line for each
// package that passes, all output of each test that fails, and at the end the figures, and the
// tests that were skipped or not judged, with their reasons.
//
// It exits with 1 if a test failed, if a package has not ended, or if no test ran.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"shaper/tests/trial"
)

func main() {
	if !tally(os.Stdin, os.Stdout) {
		os.Exit(1)
	}
}

// event is a line of `go test -json` (see go doc test2json). Events of builds have ImportPath
// instead of Package.
type event struct {
	Action, Package, ImportPath, Test string
	Output, Key, Value                string
	Elapsed                           float64
}

// test names a test, or a package if name is "".
type test struct{ pkg, name string }

func (t test) String() string {
	return strings.TrimSpace(strings.TrimPrefix(t.pkg, "shaper/") + " " + t.name)
}

// record holds what tally has read.
type record struct {
	out      io.Writer
	output   map[test]string // output of tests that have not ended
	failed   []test
	skipped  []string
	unjudged []string // not judged because the machine was busy
	figures  []event
	passed   int
	running  map[test]bool // packages that have started and not ended
}

// tally reads events from in and writes the summary to out. It reports whether at least one
// test passed and none failed.
func tally(in io.Reader, out io.Writer) bool {
	r := &record{out: out, output: map[test]string{}, running: map[test]bool{}}
	began := time.Now()
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			r.note(&e)
		} else {
			io.WriteString(out, line) // a message of the go command itself
		}
		if err != nil {
			break
		}
	}
	for t := range r.running {
		r.failed = append(r.failed, test{t.pkg, "has not ended"})
	}
	r.end(time.Since(began))
	return len(r.failed) == 0 && r.passed > 0
}

func (r *record) note(e *event) {
	t := test{e.Package + e.ImportPath, e.Test}
	switch e.Action {
	case "start":
		r.running[t] = true
	case "output", "build-output":
		r.output[t] += e.Output
	case "attr":
		r.figures = append(r.figures, *e)
	case "pass":
		if r.passed++; e.Test == "" {
			fmt.Fprintf(r.out, "ok      %-20v %6.1fs\n", t, e.Elapsed)
		}
		r.ended(t)
	case "skip":
		r.skip(t)
	case "fail", "build-fail":
		r.fail(t, "FAILED")
		if e.Test == "" {
			r.failUnended(e.Package)
		}
	}
}

// ended forgets a test or a package that has ended.
func (r *record) ended(t test) {
	delete(r.output, t)
	delete(r.running, t)
}

// fail notes a failed test, and prints what it has printed.
func (r *record) fail(t test, how string) {
	r.failed = append(r.failed, t)
	fmt.Fprintf(r.out, "%-7s %v\n%s", how, t, r.output[t])
	r.ended(t)
}

// failUnended fails the tests that ran when their package ended: go test does not, if it has stopped the
// package after its time was over.
func (r *record) failUnended(pkg string) {
	for _, t := range slices.SortedFunc(maps.Keys(r.output), func(a, b test) int { return cmp.Compare(a.name, b.name) }) {
		if pkg != "" && t.pkg == pkg {
			r.fail(t, "UNENDED")
		}
	}
}

// skip notes a skipped test. It ignores a skipped package, which has no tests.
func (r *record) skip(t test) {
	reason := t.String() + ": " + reasonIn(r.output[t])
	r.ended(t)
	switch {
	case t.name == "":
	case strings.Contains(reason, trial.NotJudged):
		r.unjudged = append(r.unjudged, reason)
	default:
		r.skipped = append(r.skipped, reason)
	}
}

// reasonIn returns the last message of a skipped test.
func reasonIn(output string) (reason string) {
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			_, reason, _ = strings.Cut(line, ": ") // cut off file and line
		}
	}
	return reason
}

func (r *record) end(took time.Duration) {
	slices.SortStableFunc(r.figures, func(a, b event) int { return cmp.Or(cmp.Compare(a.Test, b.Test), cmp.Compare(a.Key, b.Key)) })
	if len(r.figures) > 0 {
		table := tabwriter.NewWriter(r.out, 0, 8, 2, ' ', 0)
		fmt.Fprintln(table, "\ntest\tfigure\tvalue")
		for _, f := range r.figures {
			fmt.Fprintf(table, "%s\t%s\t%s\n", f.Test, strings.ReplaceAll(f.Key, "_", " "), f.Value)
		}
		table.Flush()
	}
	r.list("skipped", r.skipped)
	r.list("not judged", r.unjudged)
	var failed []string
	for _, t := range r.failed {
		failed = append(failed, t.String())
	}
	r.list("FAILED", failed)
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped, %d not judged, in %v\n",
		r.passed, len(r.failed), len(r.skipped), len(r.unjudged), took.Round(time.Second))
}

func (r *record) list(title string, all []string) {
	if len(all) > 0 {
		fmt.Fprintf(r.out, "\n%s:\n  %s\n", title, strings.Join(all, "\n  "))
	}
}

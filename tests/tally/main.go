// Command tally reads what `go test -json` prints, and prints what people read: of each
// package a line, of what failed all, at the end the figures, and what was skipped or not
// judged, with reasons. It fails if a test has failed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
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

// event is a line of `go test -json` (go doc test2json). Those of builds have ImportPath.
type event struct {
	Action, Package, ImportPath, Test string
	Output, Key, Value                string
	Elapsed                           float64
}

// test names a test; one without a name is the package itself.
type test struct{ pkg, name string }

func (t test) String() string {
	return strings.TrimSpace(strings.TrimPrefix(t.pkg, "shaper/") + " " + t.name)
}

// record is what has been read.
type record struct {
	out     io.Writer
	output  map[test]string // of those that have not ended, or have failed
	failed  []test
	skipped []string
	unsure  []string // not judged
	figures []event
	passed  int
	running map[string]bool // packages
}

// tally reports whether all tests passed, and that there were some.
func tally(in io.Reader, out io.Writer) bool {
	r := &record{out: out, output: map[test]string{}, running: map[string]bool{}}
	began := time.Now()
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			r.note(&e)
		} else {
			io.WriteString(out, line) // of the go command itself
		}
		if err != nil {
			break
		}
	}
	for pkg, still := range r.running {
		if still {
			r.failed = append(r.failed, test{pkg, "has not ended"})
		}
	}
	r.end(time.Since(began))
	return len(r.failed) == 0 && r.passed > 0
}

func (r *record) note(e *event) {
	t := test{e.Package + e.ImportPath, e.Test}
	if e.Test == "" {
		r.running[t.pkg] = e.Action == "start" || r.running[t.pkg] && e.Action == "output"
	}
	switch e.Action {
	case "output", "build-output":
		r.output[t] += e.Output
	case "attr":
		r.figures = append(r.figures, *e)
	case "pass":
		if r.passed++; e.Test == "" {
			fmt.Fprintf(r.out, "ok      %-14v %6.1fs\n", t, e.Elapsed)
		}
		delete(r.output, t)
	case "skip":
		r.skip(t)
	case "fail", "build-fail":
		r.failed = append(r.failed, t)
		fmt.Fprintf(r.out, "FAILED  %v\n%s", t, r.output[t])
	}
}

// skip notes a test that was skipped. A package without tests is none.
func (r *record) skip(t test) {
	reason := t.String() + ": " + reasonIn(r.output[t])
	delete(r.output, t)
	switch {
	case t.name == "":
	case strings.Contains(reason, trial.NotJudged):
		r.unsure = append(r.unsure, reason)
	default:
		r.skipped = append(r.skipped, reason)
	}
}

// reasonIn returns what a test that was skipped has said last.
func reasonIn(output string) (reason string) {
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			_, reason, _ = strings.Cut(line, ": ") // file and line
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
	r.list("not judged", r.unsure)
	var failed []string
	for _, t := range r.failed {
		failed = append(failed, t.String())
	}
	r.list("FAILED", failed)
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped, %d not judged, in %v\n",
		r.passed, len(r.failed), len(r.skipped), len(r.unsure), took.Round(time.Second))
}

func (r *record) list(title string, all []string) {
	if len(all) > 0 {
		fmt.Fprintf(r.out, "\n%s:\n  %s\n", title, strings.Join(all, "\n  "))
	}
}

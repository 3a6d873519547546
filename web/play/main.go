// Command play is what the playground computes with. The Makefile compiles it to WebAssembly, for the
// page /play of the dashboard. It takes the steps of `shaper simulate` with the same packages, so the
// page and the command agree to the nanosecond.
//
// It reads requests in JSON from the standard input, and answers each with a line of JSON on the
// standard output, until the input ends. In a browser, play-worker.js stands behind both.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	_ "time/tzdata" // a browser has no database of time zones

	"shaper/policy"
	"shaper/simulate"
	"shaper/stats"
	"shaper/unit"
)

// maxSteps bounds a simulation, and with it the memory and the time that a browser needs.
const maxSteps = 500_000

// mostExact is the largest whole number that JavaScript has exactly. The page sends no larger one.
const mostExact = 1<<53 - 1

// policyName is the name of the policy in errors.
const policyName = "shaper.toml"

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A request is a policy, and a workload for it.
type request struct {
	Policy string `json:"policy"`
	simulate.Words
	TraceText string `json:"trace_text"` // what is in the file Trace
}

// An answer is what has come of a request, or what is wrong with it.
type answer struct {
	Report     *simulate.Report `json:"report,omitempty"` // as `shaper simulate --json` prints it
	Courses    []course         `json:"courses"`          // of the classes of the report
	Departures string           `json:"departures"`       // the file of `shaper simulate --departures`
	Problems   []problem        `json:"problems"`
}

// A course is what a class did over time.
type course struct {
	simulate.Course
	Window  stats.Seconds `json:"window_seconds"` // of the class, or the period of its rate
	Busiest uint64        `json:"busiest"`        // the most that left within any such window, in the unit of the rate
}

// A problem is something wrong with a request, as the command prints it.
type problem struct {
	Text   string `json:"text"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"` // from 1; 0: it has no place in a file
	Column int    `json:"column,omitempty"`
}

// serve answers all requests of a stream.
func serve(in io.Reader, out io.Writer) error {
	requests, buffered := json.NewDecoder(in), bufio.NewWriterSize(out, 64<<10)
	answers := json.NewEncoder(buffered)
	for {
		var (
			q      request
			a      answer
			misfit *json.UnmarshalTypeError
		)
		err := requests.Decode(&q)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &misfit): // one of the numbers: all else in a request is text
			a.Problems = problems(fmt.Errorf("--%s: this is not a whole number from 0 to %d, the largest that the playground takes", path.Ext("." + misfit.Field)[1:], mostExact))
		case err != nil:
			return err
		default:
			a = q.answer()
		}
		if err := errors.Join(answers.Encode(a), buffered.Flush()); err != nil {
			return err
		}
	}
}

func (q request) answer() answer {
	a, err := q.simulate()
	if err != nil {
		return answer{Problems: problems(err)}
	}
	return a
}

// simulate takes the steps of `shaper simulate`.
func (q request) simulate() (a answer, err error) {
	w, err := q.Workload()
	if err != nil {
		return a, err
	}
	files, err := policy.ReadFrom(policyName, strings.NewReader(q.Policy))
	if err != nil {
		return a, fmt.Errorf("%w; the playground reads one file, without include", err)
	}
	p, _, err := policy.LoadFiles(files)
	if err != nil {
		return a, err
	}
	var departures strings.Builder
	write, err := simulate.WriteDepartures(&departures, w.IsFleet())
	if err != nil {
		return a, err
	}
	windows := newWindows(p)
	o := simulate.Options{Curves: true, MaxSteps: maxSteps, Departures: func(d *simulate.Departure) error {
		windows.add(d)
		return write(d)
	}}
	open := func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(q.TraceText)), nil }
	if a.Report, err = w.Run(p, o, open); err != nil {
		return a, err
	}
	for i := range a.Report.Classes {
		c := &a.Report.Classes[i]
		own := windows[c.Name]
		a.Courses = append(a.Courses, course{c.Course(), stats.Seconds(own.length), own.most})
	}
	a.Departures = departures.String()
	return a, nil
}

// problems returns what an error says. Those of files have their positions.
func problems(err error) (all []problem) {
	var found policy.Errors
	switch {
	case errors.As(err, &found):
		for _, e := range found {
			all = append(all, problem{e.Error(), e.File, e.Line, e.Column})
		}
		return all
	case errors.Is(err, simulate.ErrTooLong):
		err = fmt.Errorf("%w: more than %d steps; simulate a shorter time or lower rates, or use `shaper simulate`", err, maxSteps)
	}
	return []problem{{Text: err.Error()}}
}

// windows are those of all classes, by name.
type windows map[string]*window

// A window slides over the departures of a class and all beneath it. It notes the most that it has held.
type window struct {
	parent    *window // nil: there is none
	kind      unit.Kind
	length    stats.Seconds
	inside    []*simulate.Departure // what has left in the last length, in order
	sum, most uint64
}

func newWindows(p *policy.Policy) windows {
	all := windows{}
	for _, c := range p.Classes {
		all[c.Name] = &window{kind: c.Limit().Kind(), length: stats.Seconds(c.Own().WindowInForce())}
	}
	for _, c := range p.Classes {
		all[c.Name].parent = all[c.Parent]
	}
	return all
}

// add notes a departure, for its class and those above it. It keeps a copy, since d belongs to the caller.
func (all windows) add(d *simulate.Departure) {
	kept := *d
	for w := all[d.Class]; w != nil; w = w.parent {
		w.add(&kept)
	}
}

func (w *window) add(d *simulate.Departure) {
	for len(w.inside) > 0 && stats.Seconds(d.At.Sub(w.inside[0].At)) >= w.length {
		w.sum -= uint64(w.inside[0].Cost.In(w.kind))
		w.inside = w.inside[1:]
	}
	w.inside = append(w.inside, d)
	w.sum += uint64(d.Cost.In(w.kind))
	w.most = max(w.most, w.sum)
}

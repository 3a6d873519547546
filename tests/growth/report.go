package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is what go test has printed.
type report struct {
	cpu      string // the name of the processor
	measured string // which revision, and when
	series   []*series
}

// series is one work on so many processors.
type series struct {
	work, of   string // of: what there are more and more of
	processors int
	points     []*point
}

// point has, of each unit, the values of all rounds.
type point struct {
	n      int
	values map[string][]float64
}

// median returns the middle value of a unit; false if there is none.
func (p *point) median(unit string) (float64, bool) {
	values := slices.Sorted(slices.Values(p.values[unit]))
	if len(values) == 0 {
		return 0, false
	}
	return values[len(values)/2], true
}

// read returns an error if a benchmark has failed, or if there is none.
func read(in io.Reader) (*report, error) {
	r := &report{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		line := lines.Text()
		fmt.Fprintln(os.Stderr, line)
		switch name, value, _ := strings.Cut(line, ":"); {
		case strings.HasPrefix(line, "FAIL"), strings.HasPrefix(line, "panic"):
			return nil, errors.New("go test has failed")
		case name == "cpu":
			r.cpu = strings.TrimSpace(value)
		case strings.HasPrefix(line, "BenchmarkGrowth/"):
			r.add(strings.Fields(line))
		}
	}
	if len(r.series) == 0 {
		return nil, errors.New("no benchmark has run")
	}
	return r, nil
}

// add takes a line such as "BenchmarkGrowth/item_of_a_key/keys=10-2 100 26 ns/op 4 allocs/op". The
// number of processors is missing if it is 1.
func (r *report) add(fields []string) {
	name, many, _ := strings.Cut(strings.TrimPrefix(fields[0], "BenchmarkGrowth/"), "/")
	of, number, _ := strings.Cut(many, "=")
	number, processors, _ := strings.Cut(number, "-")
	n, _ := strconv.Atoi(number)
	cpus := 1
	if processors != "" {
		cpus, _ = strconv.Atoi(processors)
	}
	p := r.point(strings.ReplaceAll(name, "_", " "), of, cpus, n)
	for i := 2; i+1 < len(fields); i += 2 {
		if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
			p.values[fields[i+1]] = append(p.values[fields[i+1]], v)
		}
	}
}

func (r *report) point(work, of string, processors, n int) *point {
	at := slices.IndexFunc(r.series, func(s *series) bool { return s.work == work && s.of == of && s.processors == processors })
	if at < 0 {
		at = len(r.series)
		r.series = append(r.series, &series{work: work, of: of, processors: processors})
	}
	s := r.series[at]
	for _, p := range s.points {
		if p.n == n {
			return p
		}
	}
	p := &point{n, map[string][]float64{}}
	s.points = append(s.points, p)
	return p
}

func (r *report) mostProcessors() (most int) {
	for _, s := range r.series {
		most = max(most, s.processors)
	}
	return most
}

// seconds shows nanoseconds with three digits.
func seconds(ns float64) string {
	d := time.Duration(ns)
	unit := time.Nanosecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

package main

import "time"

// kind is a kind of work.
type kind struct {
	name    string
	group   string // kinds of a group share a table
	label   string // this kind, in the table of its group
	columns []column
	ways    []way
	setting setting
	seconds float64                           // length of one measurement
	measure func(t *trial) ([]float64, error) // returns a value for each column
}

// column is one of the figures that a measurement yields.
type column struct {
	name    string
	format  string
	lower   bool // lower is better
	higher  bool // higher is better; need not be set with ratio
	ratio   bool // the table compares it with shaper's
	plotted bool // the plot shows it; true for one column of each kind
}

// compared reports whether the figure says that one program is better than another. Others describe the measurement.
func (c column) compared() bool { return c.lower || c.higher || c.ratio }

// trial is one measurement.
type trial struct {
	kind
	way   way
	proxy *proxy // nil: the way is direct
	port  int    // where the source sends
}

func (t *trial) length() time.Duration { return time.Duration(t.seconds * float64(time.Second)) }

// result holds what was measured of a kind of work.
type result struct {
	kind
	rows []row // one for each way
}

type row struct {
	way    way
	rounds [][]float64 // for each round, the values of all columns
	failed error       // why measuring stopped; nil: it did not
}

// column returns the values of one column, one for each round.
func (r row) column(i int) (values []float64) {
	for _, round := range r.rounds {
		values = append(values, round[i])
	}
	return values
}

package simulate

import (
	"time"

	"shaper/stats"
)

// A point is the state of a class at one time, in the unit of its rate.
type point struct {
	Offered, Departed uint64 // since the beginning
	Waiting           uint64
}

// A curve is the course of a class over time. It has at most maxSteps steps, however long the
// run is.
type curve struct {
	step  time.Duration
	steps []step
}

// A step is what happened in one step of a curve.
type step struct {
	Last point  // the state at its end
	Most uint64 // the most that waited
	seen bool   // something happened in it; otherwise filled sets the rest
}

// maxSteps is more than the width of a plot in pixels.
const maxSteps = 1024

func newCurve() *curve { return &curve{step: time.Microsecond} }

// note notes the state at a time after the start, which never goes back.
func (c *curve) note(after time.Duration, p point) {
	for after/c.step >= maxSteps {
		c.halve()
	}
	for len(c.steps) <= int(after/c.step) {
		c.steps = append(c.steps, step{})
	}
	s := &c.steps[after/c.step]
	s.Last, s.Most, s.seen = p, max(s.Most, p.Waiting), true
}

// halve joins each two steps into one.
func (c *curve) halve() {
	for i, s := range c.steps {
		to := &c.steps[i/2]
		switch {
		case i%2 == 0:
			*to = s
		case s.seen:
			*to = step{s.Last, max(to.Most, s.Most), true}
		}
	}
	c.steps = c.steps[:(len(c.steps)+1)/2]
	c.step *= 2
}

// filled returns the curve with all its steps. Steps without events repeat the state before them.
func (c *curve) filled() curve {
	steps, last := make([]step, len(c.steps)), point{}
	for i, s := range c.steps {
		if !s.seen {
			s.Last = last
		}
		s.Most = max(s.Most, last.Waiting)
		last = s.Last
		steps[i] = s
	}
	return curve{c.step, steps}
}

// A Course is a class over time. Step i ends i+1 steps after the beginning. Amounts are in the unit of
// the rate.
type Course struct {
	Step    stats.Seconds `json:"step_seconds"`
	Offered []uint64      `json:"offered"` // from the beginning to the end of the step
	Left    []uint64      `json:"left"`    // the same
	Waiting []uint64      `json:"waiting"` // the most in the step
	// Level are the tokens of its token bucket at the beginning of each step of LevelStep, from the beginning on; nil: it
	// has none, or there is a fleet.
	LevelStep stats.Seconds `json:"level_step_seconds,omitempty"`
	Level     []float64     `json:"level,omitempty"`
}

// course returns the curve for other programs. c may be nil.
func (c *curve) course() (course Course) {
	if c == nil {
		return course
	}
	filled := c.filled()
	course.Step = stats.Seconds(filled.step)
	for _, s := range filled.steps {
		course.Offered = append(course.Offered, s.Last.Offered)
		course.Left = append(course.Left, s.Last.Departed)
		course.Waiting = append(course.Waiting, s.Most)
	}
	return course
}

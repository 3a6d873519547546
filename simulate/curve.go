package simulate

import "time"

// point is the state of a class at one moment, in what its rate counts.
type point struct {
	Offered, Left uint64 // since the beginning
	Waiting       uint64
}

// curve is the course of a class, in so few steps that it can be drawn: of a run
// of any length, a thousand at most.
type curve struct {
	step  time.Duration
	steps []step
}

// step is what happened in one step of a curve.
type step struct {
	Last point  // at its end
	Most uint64 // the most that waited
	seen bool   // something happened; else all is as it was
}

// maxSteps is more than a plot has pixels.
const maxSteps = 1024

func newCurve() *curve { return &curve{step: time.Microsecond} }

// note notes the state after what happened at a time, which does not go back.
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

// halve makes one step of two.
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

// settled returns the steps with those filled in in which nothing happened.
func (c *curve) settled() []step {
	steps, last := make([]step, len(c.steps)), point{}
	for i, s := range c.steps {
		if !s.seen {
			s.Last = last
		}
		s.Most = max(s.Most, last.Waiting)
		last = s.Last
		steps[i] = s
	}
	return steps
}

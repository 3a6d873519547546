package simulate

import "time"

// A level is the course of the token bucket of a class: its tokens at the beginning of each step. It
// has at most maxSteps steps, however long the run is.
type level struct {
	step   time.Duration
	tokens []float64
}

func newLevel() *level { return &level{step: time.Microsecond} }

// pass notes the steps that begin until a time after the start. tokens returns the level at a time.
func (l *level) pass(until time.Duration, tokens func(after time.Duration) float64) {
	for until/l.step >= maxSteps {
		l.halve()
	}
	for next := l.next(); next <= until; next = l.next() {
		l.tokens = append(l.tokens, tokens(next))
	}
}

// next returns when the next step begins.
func (l *level) next() time.Duration { return time.Duration(len(l.tokens)) * l.step }

// halve joins each two steps into one.
func (l *level) halve() {
	for i := range (len(l.tokens) + 1) / 2 {
		l.tokens[i] = l.tokens[2*i]
	}
	l.tokens = l.tokens[:(len(l.tokens)+1)/2]
	l.step *= 2
}

package shaper

import (
	"time"

	"shaper/limit"
)

// A lent limiter stands for a shared limiter in a copy of its tree. It lets out what the fleet is expected to grant, and
// neither asks for grants nor uses them.
type lent struct {
	limit.Limiter // a copy of what counts what this process has let out
	budgets       []Budget
	parts         []int // as of shared.parts
	closed        limit.Span
	since         time.Time // when the tree was copied
	gone          int64     // units that have left in the copy since then
}

// bare implements backed.
func (l *lent) bare() limit.Limiter { return l.Limiter }

// idle implements backed.
func (l *lent) idle(time.Time) {}

// left implements backed.
func (l *lent) left(time.Time) {}

// over implements backed.
func (l *lent) over() (at time.Time) { return at }

// lost implements backed.
func (l *lent) lost(time.Time, int64) {}

// Next implements limit.Limiter.
func (l *lent) Next(now time.Time, ahead, n int64) time.Time { return l.Estimate(now, ahead, n) }

// Estimate implements limit.Estimator.
func (l *lent) Estimate(now time.Time, ahead, n int64) time.Time {
	return l.estimate(asItIs{}, now, ahead, n)
}

// estimate implements budgeted.
func (l *lent) estimate(own hastener, _ time.Time, ahead, n int64) time.Time {
	return estimate(l.budgets, l.closed, own, l.since, l.gone+ahead, n)
}

// holding implements budgeted.
func (l *lent) holding(_ time.Time, ahead, n int64) (part int) {
	return holding(l.budgets, l.parts, l.closed, l.since, l.gone+ahead, n)
}

// Take implements limit.Limiter.
func (l *lent) Take(since, now time.Time, n int64) {
	l.Limiter.Take(since, now, n)
	l.gone += n
}

// asItIs is a hastener that corrects nothing.
type asItIs struct{}

func (asItIs) hasten(_, at time.Time) time.Time { return at }

// estimate returns when all budgets are expected to let an item leave, outside the closed time. own corrects what the first of
// them says.
func estimate(budgets []Budget, closed limit.Span, own hastener, now time.Time, ahead, n int64) time.Time {
	return closed.Next(now, ahead, n, func(now time.Time, ahead, n int64) time.Time {
		at := own.hasten(now, budgets[0].Estimate(now, ahead, n))
		for _, b := range budgets[1:] {
			at = later(at, b.Estimate(now, ahead, n))
		}
		return at
	})
}

// holding returns the part of the budget that is expected to let an item leave last, or that of the closed time.
func holding(budgets []Budget, parts []int, closed limit.Span, now time.Time, ahead, n int64) (part int) {
	var last time.Time
	for i, b := range budgets {
		if at := b.Estimate(now, ahead, n); i == 0 || at.After(last) {
			part, last = parts[i], at
		}
	}
	if closed.Contains(later(last, now)) {
		return parts[len(budgets)]
	}
	return part
}

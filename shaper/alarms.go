package shaper

import (
	"time"

	"shaper/limit"
)

// alarm is a moment at which a class is looked at again: a tree by the pacer, a
// contender by the feed that it is in.
type alarm struct {
	class *Class
	at    time.Time
	index int // in alarms, plus 1; 0: not set
}

// alarms is a heap, the earliest first. It is that of container/heap without
// its calls through an interface, which took a fifth of Release.
type alarms []*alarm

// first returns when the first goes off; limit.Never where none is set.
func (h alarms) first() time.Time {
	if len(h) == 0 {
		return limit.Never
	}
	return h[0].at
}

// set moves an alarm to at; limit.Never removes it.
func (h *alarms) set(a *alarm, at time.Time) {
	switch {
	case at == limit.Never:
		h.remove(a)
	case a.index == 0:
		a.at, a.index = at, len(*h)+1
		*h = append(*h, a)
		h.up(len(*h) - 1)
	default:
		a.at = at
		h.fix(a.index - 1)
	}
}

func (h *alarms) remove(a *alarm) {
	if a.index == 0 {
		return
	}
	i, last := a.index-1, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	if i < last {
		h.fix(i)
	}
}

func (h alarms) fix(i int) {
	h.down(i)
	h.up(i) // does nothing where it has gone down
}

func (h alarms) up(i int) {
	for i > 0 {
		above := (i - 1) / 2
		if !h[i].at.Before(h[above].at) {
			return
		}
		h.swap(i, above)
		i = above
	}
}

func (h alarms) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].at.Before(h[least].at) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h alarms) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

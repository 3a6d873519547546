package shaper

import (
	"time"

	"shaper/limit"
)

// An alarm is a moment at which somebody looks at a node again: the pacer at a root, a feed
// at a contender. It is due when that moment has come. A seat in a ring is an alarm too, by
// the clock of the ring.
type alarm struct {
	node  *node
	at    time.Time // unused in a seat
	key   int64     // orders the heap: at in nanoseconds since epoch; in a seat, a time by the clock of its ring
	index int       // in alarms, plus 1; 0: not set
}

// epoch is the time of key 0. A key is at most farthest away from 0, a century and a half,
// so the difference of two keys never overflows.
var epoch = time.Now()

const farthest = 1<<62 - 1

// clockPatience is how long a heap may overlook that somebody has set the wall clock, or that the
// machine was suspended.
const clockPatience = time.Minute

// byClockOf returns at by the clock of now. If only the wall clock shows at, that is when it does so
// unless somebody sets it. If now is of the wall clock too, as in a simulation, nothing changes.
func byClockOf(now, at time.Time) time.Time {
	if at == limit.Never || at != at.Round(0) || now == now.Round(0) {
		return at
	}
	return now.Add(at.Sub(now))
}

// alarms is a heap, the earliest alarm first. It is container/heap without the calls
// through an interface, which took a fifth of the time of Release.
type alarms []*alarm

// first returns when the first alarm is due; limit.Never if none is set.
func (h alarms) first() time.Time {
	if len(h) == 0 {
		return limit.Never
	}
	return h[0].at
}

// set moves an alarm to at; limit.Never removes it. All alarms of a heap are by the clock of now: a
// time of the wall clock cannot be put in order with others, because somebody may set that clock.
// For such a time the alarm is due after clockPatience at the latest.
func (h *alarms) set(a *alarm, now, at time.Time) {
	if by := byClockOf(now, at); by != at {
		at = earlier(by, now.Add(clockPatience))
	}
	switch {
	case at == limit.Never:
		h.remove(a)
	case a.index == 0 || at != a.at:
		a.at = at
		h.put(a, int64(min(max(at.Sub(epoch), -farthest), farthest)))
	}
}

// put moves an alarm to a key, and sets it if it is not set.
func (h *alarms) put(a *alarm, key int64) {
	a.key = key
	if a.index == 0 {
		*h = append(*h, a)
		h.up(len(*h) - 1)
	} else {
		h.fix(a.index - 1)
	}
}

// before reports whether key a comes before key b. The clock of a ring may have wrapped
// round in between.
func before(a, b int64) bool { return a-b < 0 }

func (h *alarms) remove(a *alarm) {
	if a.index == 0 {
		return
	}
	i, n := a.index-1, len(*h)-1
	last := (*h)[n]
	(*h)[n], *h, a.index = nil, (*h)[:n], 0
	if i < n {
		(*h)[i] = last
		h.fix(i)
	}
}

func (h alarms) fix(i int) {
	if h.down(i) == i {
		h.up(i)
	}
}

func (h alarms) up(i int) {
	a := h[i]
	for i > 0 {
		above := (i - 1) / 2
		if !before(a.key, h[above].key) {
			break
		}
		h.place(h[above], i)
		i = above
	}
	h.place(a, i)
}

func (h alarms) down(i int) int {
	a := h[i]
	for {
		child := 2*i + 1
		if child+1 < len(h) && before(h[child+1].key, h[child].key) {
			child++
		}
		if child >= len(h) || !before(h[child].key, a.key) {
			break
		}
		h.place(h[child], i)
		i = child
	}
	h.place(a, i)
	return i
}

func (h alarms) place(a *alarm, i int) { h[i], a.index = a, i+1 }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// earlierKnown returns the earlier of two times; one that is zero is not known, and does not count.
func earlierKnown(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

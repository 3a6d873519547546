package simulate

import (
	"container/heap"
	"time"
)

// An event is the next thing that one part of a simulation does. Each part has
// one, which moves in time.
type event struct {
	at    time.Time
	rank  int // the first of those at one moment
	do    func() error
	place int // in the agenda, from 1; 0: it is not there
}

// An agenda is a heap of events for container/heap: the next one is the first.
type agenda []*event

func (a agenda) first() *event {
	if len(a) == 0 {
		return nil
	}
	return a[0]
}

// set has an event happen at a time, wherever it was.
func (a *agenda) set(e *event, at time.Time) {
	if e.place > 0 && e.at.Equal(at) {
		return
	}
	if e.at = at; e.place == 0 {
		heap.Push(a, e)
		return
	}
	heap.Fix(a, e.place-1)
}

// remove has an event not happen.
func (a *agenda) remove(e *event) {
	if e.place > 0 {
		heap.Remove(a, e.place-1)
	}
}

func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool {
	if c := a[i].at.Compare(a[j].at); c != 0 {
		return c < 0
	}
	return a[i].rank < a[j].rank
}

func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i+1, j+1
}

func (a *agenda) Push(x any) {
	e := x.(*event)
	*a = append(*a, e)
	e.place = len(*a)
}

func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	*a, e.place = (*a)[:last], 0
	return e
}

package simulate

import (
	"container/heap"
	"time"
)

// An event is the next thing that one part of a run does. Each part has one event.
type event struct {
	at    time.Time
	rank  int // of events at one time, the lowest is first
	do    func() error
	place int // in the agenda, counted from 1; 0: not in it
}

// What happens at one moment, in this order: members of a fleet hear of the store, items leave, others
// arrive.
const (
	ofCalls = iota
	ofNodes
	ofTrees
	ofSenders
)

// rankOf returns the rank of event i of a kind, of one run.
func rankOf(kind, run, i int) int { return kind<<60 | run<<40 | i }

// An agenda is a heap of events, for container/heap. The next event is the first.
type agenda []*event

func (a agenda) first() *event {
	if len(a) == 0 {
		return nil
	}
	return a[0]
}

// set sets the time of an event, which need not be in the agenda before.
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

// remove removes an event, if it is in the agenda.
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

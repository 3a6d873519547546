package fleet

import (
	"container/heap"
	"time"
)

// An alarm is when a Machine looks at a Lease again.
type alarm struct {
	due   time.Time
	index int // in the heap, from 1; 0: none
}

// alarms are the leases with an alarm, the earliest first.
type alarms []*Lease

func (a alarms) Len() int { return len(a) }

// Less implements heap.Interface. The order of leases that are due at one moment is always the same,
// so that a simulation is.
func (a alarms) Less(i, j int) bool {
	if c := a[i].due.Compare(a[j].due); c != 0 {
		return c < 0
	}
	return a[i].key < a[j].key
}

func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (a *alarms) Push(x any) {
	l := x.(*Lease)
	*a = append(*a, l)
	l.index = len(*a)
}

// Pop implements heap.Interface.
func (a *alarms) Pop() any {
	last := len(*a) - 1
	l := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	l.index = 0
	return l
}

// set makes the alarm of a lease go off at a time.
func (a *alarms) set(l *Lease, due time.Time) {
	l.due = due
	if l.index > 0 {
		heap.Fix(a, l.index-1)
		return
	}
	heap.Push(a, l)
}

// next returns a lease whose alarm has gone off at now; nil if there is none.
func (a *alarms) next(now time.Time) *Lease {
	if len(*a) == 0 || (*a)[0].due.After(now) {
		return nil
	}
	return heap.Pop(a).(*Lease)
}

// clear removes the alarm of a lease.
func (a *alarms) clear(l *Lease) {
	if l.index > 0 {
		heap.Remove(a, l.index-1)
	}
}

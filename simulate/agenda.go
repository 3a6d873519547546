package simulate

import "time"

// An event is the next thing that one part of a simulation does. Each part has
// one, which moves in time.
type event struct {
	at    time.Time
	rank  int // the first of those at one moment
	do    func() error
	place int // in the agenda, from 1; 0: it is not there
}

// An agenda is a heap of events: the next one is the first.
type agenda []*event

func (a agenda) first() *event {
	if len(a) == 0 {
		return nil
	}
	return a[0]
}

func (a agenda) before(i, j int) bool {
	if c := a[i].at.Compare(a[j].at); c != 0 {
		return c < 0
	}
	return a[i].rank < a[j].rank
}

func (a agenda) swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i+1, j+1
}

// set has an event happen at a time, wherever it was.
func (a *agenda) set(e *event, at time.Time) {
	if e.place > 0 && e.at.Equal(at) {
		return
	}
	e.at = at
	if e.place == 0 {
		*a = append(*a, e)
		e.place = len(*a)
	}
	a.settle(e.place - 1)
}

// remove has an event not happen.
func (a *agenda) remove(e *event) {
	if e.place == 0 {
		return
	}
	i, last := e.place-1, len(*a)-1
	a.swap(i, last)
	*a = (*a)[:last]
	if e.place = 0; i < last {
		a.settle(i)
	}
}

// settle moves what stands at i to where it belongs.
func (a agenda) settle(i int) {
	for i > 0 && a.before(i, (i-1)/2) {
		a.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		next := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(a); child++ {
			if a.before(child, next) {
				next = child
			}
		}
		if next == i {
			return
		}
		a.swap(i, next)
		i = next
	}
}

package shaper

import (
	"container/heap"
	"sync"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// A Trial computes what classes would do, and enforces nothing. The classes get copies of
// what really comes. Their counters say what would have waited, and what would have been
// dropped or refused. No pacer drives a trial: whoever offers a copy or reads the counters
// first lets everything happen that is due by then, each event at its own time. So nothing
// is late. A Trial may be used concurrently.
//
// If a limit would hold up a source, the copies of what it sends later are held up too;
// see Source. A session that would have been refused sends no more copies; see Guest. An
// answer comes as long after its copy has left as it really came after the message.
type Trial struct {
	classes []*Class // in the order of the policy; set when the trial is made

	// mu is taken under the lock of a real tree, and before the locks of the trial's trees.
	// It guards the fields below.
	mu             sync.Mutex
	latest         time.Time // when something happened last
	trees          alarms    // the next departure of each tree
	events         events    // what else will happen
	unanswered     []*Copy   // those without an answer, in order, if nobody knows which answer belongs to which
	othersInFlight int       // how many answers come first, to items without a copy
	spare          *Copy     // a list of copies to use again
	blocked        int       // how many copies are blocked in sources
	orphans        int       // how many copies of sessions that have ended there are
}

// Classes returns the classes, in the order of the policy. Only copies enter them.
func (t *Trial) Classes() []*Class { return t.classes }

// CatchUp lets everything happen that is due at now.
func (t *Trial) CatchUp(now time.Time) {
	defer t.at(now).Unlock()
}

// at locks the trial, and lets everything happen that is due at now. The caller unlocks
// what it returns.
func (t *Trial) at(now time.Time) *sync.Mutex {
	t.mu.Lock()
	caughtUp := false
	defer func() {
		if !caughtUp { // a panic ends one session, and must not block the others
			t.mu.Unlock()
		}
	}()
	t.catchUp(now)
	caughtUp = true
	return &t.mu
}

// catchUp is CatchUp for a caller that holds mu. If an event and a departure are due at
// the same moment, the event comes first.
func (t *Trial) catchUp(now time.Time) {
	for {
		leaves, happens := t.trees.first(), t.events.first()
		at := earlier(leaves, happens)
		if at.After(now) {
			break
		}
		t.latest = later(t.latest, byClockOf(t.latest, at))
		if !happens.After(leaves) {
			heap.Pop(&t.events).(*event).of.happen()
		} else {
			t.release(t.trees[0].node.class)
		}
	}
	t.latest = later(t.latest, now)
}

// release lets the next item leave its tree.
func (t *Trial) release(root *Class) {
	it := root.Release(t.latest)
	t.expect(root)
	if it != nil {
		it.Owner.Leave(t.latest)
	}
}

// expect sets the alarm for the next departure of the tree that a class is in. Whoever
// changes something in a class calls it afterwards.
func (t *Trial) expect(c *Class) {
	t.trees.set(&c.root().alarm, t.latest, later(c.Next(t.latest), t.latest))
}

// copy returns a copy of an item of this cost, for a class.
func (t *Trial) copy(c *Class, cost Cost) *Copy {
	x := t.spare
	if x == nil {
		x = new(Copy)
	} else {
		t.spare = x.next
	}
	*x = Copy{trial: t, class: c}
	x.item = Item{Cost: cost, Held: cost.Bytes, Owner: x}
	return x
}

// A timetable changes a class of a trial when its schedule says so.
type timetable struct {
	event
	trial *Trial
	class *Class
	conf  policy.Class // at all times
}

// follow makes a class of the trial follow the schedule of its policy from now on.
func (t *Trial) follow(c *Class, conf policy.Class) {
	_, until := conf.Scheduled(t.latest)
	if until.IsZero() {
		return
	}
	change := &timetable{trial: t, class: c, conf: conf}
	change.of = change
	t.schedule(until, &change.event)
}

// happen is the event of a change.
func (s *timetable) happen() {
	conf, until := s.conf.Scheduled(s.trial.latest)
	s.class.Set(s.trial.latest, conf)
	s.trial.expect(s.class)
	if !until.IsZero() {
		s.trial.schedule(until, &s.event)
	}
}

// events is a heap, the earliest event first.
type events []*event

// An event is something that happens in a trial at a time.
type event struct {
	at    time.Time
	of    interface{ happen() }
	index int // in events, plus 1; 0: it is not scheduled
}

// schedule makes an event happen at its time, or at once if that has come.
func (t *Trial) schedule(at time.Time, e *event) {
	if !at.After(t.latest) {
		e.of.happen()
		return
	}
	e.at = at
	heap.Push(&t.events, e)
}

// unschedule cancels an event.
func (t *Trial) unschedule(e *event) {
	if e.index > 0 {
		heap.Remove(&t.events, e.index-1)
	}
}

// first returns when the first event happens; limit.Never if there is none.
func (h events) first() time.Time {
	if len(h) == 0 {
		return limit.Never
	}
	return h[0].at
}

func (h events) Len() int           { return len(h) }
func (h events) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h events) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}
func (h *events) Push(e any) {
	*h = append(*h, e.(*event))
	(*h)[len(*h)-1].index = len(*h)
}
func (h *events) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	e.index = 0
	return e
}

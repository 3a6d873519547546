package shaper

import (
	"runtime"
	"sync"
	"time"

	"shaper/limit"
	"shaper/stats"
)

// A pacer wakes trees of classes at their departure times. It has one goroutine, one timer
// and absolute deadlines for all its trees. So lateness never adds up, and nothing polls.
//
// A wake-up is late by some tens of microseconds. A gap begins when the item before has
// left, so it loses that time, and nothing makes up for it. So the pacer sets the timer
// early for a gap, by as much as wake-ups have been late lately, and waits the rest by
// looking at the clock. To decide what leaves takes time, too. So the pacer decides shortly
// before the gap ends, and then waits. No departure is early.
type pacer struct {
	// Set when the pacer is made.
	clock   func() time.Time // time.Now, except in tests
	done    chan struct{}    // closed when the goroutine has ended
	unowned bool             // nobody closes it: it has a goroutine and a timer only while something waits

	delays stats.Histogram // by how much items have left late

	// mu guards the fields below. It is taken last, under the lock of a tree.
	mu     sync.Mutex
	timer  timer     // nil: the pacer is unowned, and nothing waits
	alarms alarms    // one for each tree in which something waits
	armed  time.Time // what the timer is set to; limit.Never: it is not set
	sleeps bool      // armed was still to come when the timer was set
	awake  bool      // the goroutine looks at the alarms before it waits for the timer again
	closed bool

	late  lateness  // of wake-ups
	takes lateness  // of decisions: how long they take
	early bool      // the timer may be set before a gap ends; see [daemon] punctual
	until time.Time // until when the pacer looks at the clock after this wake-up
	ahead bool      // the alarm that pop has taken out is for a gap, and decided before it ends
}

// A timer has one absolute deadline. One goroutine waits for the deadline, and other goroutines
// may move it meanwhile.
type timer interface {
	// set moves the deadline; limit.Never stops the timer. One goroutine at a time calls it.
	set(at time.Time)
	// wait returns true when the deadline has passed, and false when the timer is closed.
	// It may return true early.
	wait() bool
	// close ends wait and frees the timer.
	close()
	// precise reports whether the timer is late by microseconds, and time.Now goes on while
	// somebody looks at it.
	precise() bool
}

// newPacer returns a pacer on a timer, and starts its goroutine.
func newPacer(t timer) *pacer {
	p := idlePacer()
	p.timer, p.done = t, make(chan struct{})
	go func() {
		defer close(p.done)
		p.run(t)
	}()
	return p
}

// idlePacer returns a pacer without a timer and a goroutine.
func idlePacer() *pacer { return &pacer{clock: time.Now, armed: limit.Never, early: true} }

// close stops the pacer and waits for its goroutine. What still waits never leaves.
func (p *pacer) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.timer.close()
	<-p.done
}

// run is the goroutine of the pacer.
func (p *pacer) run(t timer) {
	for t.wait() {
		p.release(p.wake())
		if !p.rearm() {
			return
		}
	}
}

// wake notes that the timer has ended its wait, learns how late that is, and returns the
// time.
func (p *pacer) wake() (now time.Time) {
	now = p.clock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awake = true
	switch {
	case now.Before(p.armed):
		p.until = time.Time{} // too early to look at the clock until then
		return now
	case p.sleeps:
		p.late.learn(now.Sub(p.armed))
	}
	p.armed = limit.Never
	return now
}

// yieldAfter is how long the pacer goes on while something is always due. Then it lets other goroutines run that have
// no processor.
const yieldAfter = 200 * time.Microsecond

// release lets what is due leave from begin on: one item of each tree, in turn. Between two
// of them it looks at the clock if that is worth while.
func (p *pacer) release(begin time.Time) {
	for now := begin; now.Sub(begin) < yieldAfter; now = p.clock() {
		switch a, at, soon := p.pop(now); {
		case a != nil:
			p.releaseOne(now, a.node, at)
		case !soon:
			return
		}
	}
	runtime.Gosched() // the timer will be due at once, so to wait for it would let nobody run
}

// set implements waker. The caller holds the lock of its tree.
func (p *pacer) set(a *alarm, now, at time.Time, gap bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.node.gap = gap
	p.alarms.set(a, now, at)
	if p.awake {
		return
	}
	if p.unowned {
		p.startOrStop()
	}
	if len(p.alarms) > 0 && p.alarms[0] == a {
		p.armBefore(p.armed)
	}
}

// startOrStop starts the goroutine of an unowned pacer if something waits, and wakes it to
// end if nothing waits any more. The caller holds mu.
func (p *pacer) startOrStop() {
	switch waits, now := len(p.alarms) > 0, p.clock(); {
	case waits && p.timer == nil:
		p.timer, p.armed = newTimer(), limit.Never
		go p.run(p.timer)
	case !waits && p.timer != nil && p.armed.After(now):
		p.armed, p.sleeps = now, false
		p.timer.set(now)
	}
}

// together is how far apart two departures may be for one wake-up to serve both. To look at
// the clock for so long costs less than to sleep.
const together = 10 * time.Microsecond

// pop takes out an alarm that is due at now, and returns when it is due. If a gap ends then, that may be so much
// later as a decision takes, if the pacer would look at the clock until then anyway. If there is none, soon says that the pacer
// looks at the clock until the first one is due.
func (p *pacer) pop(now time.Time) (a *alarm, at time.Time, soon bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.alarms) == 0 {
		return nil, at, false
	}
	a, at = p.alarms[0], p.alarms[0].at
	p.ahead = p.isEarlyFor(a)
	if at.After(now) {
		soon = !p.closed && p.timer.precise() && !at.After(later(p.until, now.Add(together)))
		if !(soon && p.ahead && at.Sub(now) <= p.takes.usual) {
			return nil, at, soon
		}
	}
	p.alarms.remove(a)
	return a, at, false
}

// rearm sets the timer for the earliest alarm. It reports whether the pacer goes on.
func (p *pacer) rearm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awake = false
	if p.unowned && len(p.alarms) == 0 {
		p.timer.close()
		p.timer = nil
		return false
	}
	p.armBefore(limit.Never)
	return true
}

// mostOfSleep bounds how early the timer is set: by at most a quarter of the time until the alarm.
// So the pacer spends no larger share of its time looking at the clock.
const mostOfSleep = 4

// armBefore sets the timer for the first alarm, if the timer has to go off before a time for it.
// The caller holds mu.
func (p *pacer) armBefore(before time.Time) {
	if len(p.alarms) == 0 {
		return
	}
	at, until, now := p.alarms[0].at, time.Time{}, p.clock()
	if p.isEarlyFor(p.alarms[0]) {
		until = at
		at = at.Add(-max(min(p.late.usual+p.takes.usual, at.Sub(now)/mostOfSleep), 0))
	}
	if !at.Before(before) {
		return
	}
	if p.until, p.sleeps = until, at.After(now); !at.Equal(p.armed) {
		p.armed = at
		p.timer.set(at)
	}
}

// isEarlyFor reports whether the pacer wakes up before an alarm is due: when a gap ends. The caller holds mu.
func (p *pacer) isEarlyFor(a *alarm) bool { return p.early && a.node.gap && p.timer.precise() }

// setEarly says whether the timer may be set before a gap ends.
func (p *pacer) setEarly(early bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.early = early
}

// releaseOne lets the item of a tree leave that is due at a time, and sets the alarm for
// the next. n was the root of the tree when the alarm was set.
func (p *pacer) releaseOne(now time.Time, n *node, due time.Time) {
	it, now := p.hand(now, n, due)
	if it == nil {
		return
	}
	p.delays.Observe(now.Sub(due))
	from := it.class
	it.Owner.Leave(now)
	from.handing.Store(false)
}

// hand is Release for the pacer. If the item is due after now, hand decides now what leaves then, and returns then:
// until then, the tree is locked, so that nobody lets anything leave at that time before it has come. It sets handing: nothing
// overtakes the item in its class until the caller has told the owner and clears handing.
func (p *pacer) hand(now time.Time, n *node, due time.Time) (it *Item, at time.Time) {
	begin := now
	if p.ahead {
		now = now.Add(max(due.Sub(now), 0))
	}
	root, at := n.lockAt(now)
	defer root.mu.Unlock()
	if it = release(at, root); it != nil {
		it.class.handing.Store(true)
	}
	root.wake(at)
	if p.ahead {
		at = p.await(begin, at)
	}
	return it, at
}

// await learns how long a decision has taken that began at a time, and returns the time as soon as it is at least at.
func (p *pacer) await(begin, at time.Time) (now time.Time) {
	now = p.clock()
	p.mu.Lock()
	p.takes.learn(now.Sub(begin))
	p.mu.Unlock()
	for now.Before(at) {
		now = p.clock()
	}
	return now
}

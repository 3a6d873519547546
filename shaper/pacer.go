package shaper

import (
	"sync"
	"time"

	"shaper/limit"
)

// A pacer wakes trees of classes at their departure times. It has one goroutine, one timer
// and absolute deadlines for all of them. So lateness never adds up, and nothing polls.
type pacer struct {
	// Set when the pacer is made.
	done    chan struct{} // closed when the goroutine has ended
	unowned bool          // nobody closes it: it has a goroutine and a timer only while something waits

	// mu guards the fields below. It is taken last, under the lock of a tree.
	mu     sync.Mutex
	timer  timer     // nil: the pacer is unowned, and nothing waits
	alarms alarms    // one for each tree in which something waits
	armed  time.Time // what the timer is set to
}

// A timer has one absolute deadline. One goroutine waits for it while others may move it.
type timer interface {
	// set moves the deadline; limit.Never stops the timer. One goroutine at a time calls it.
	set(at time.Time)
	// wait returns true when the deadline has passed, and false when the timer is closed.
	// It may return true early.
	wait() bool
	// close ends wait and frees the timer.
	close()
}

// newPacer returns a pacer on a timer, and starts its goroutine.
func newPacer(t timer) *pacer {
	p := &pacer{timer: t, done: make(chan struct{}), armed: limit.Never}
	go func() {
		defer close(p.done)
		p.run(t)
	}()
	return p
}

// close stops the pacer and waits for its goroutine. What still waits never leaves.
func (p *pacer) close() {
	p.timer.close()
	<-p.done
}

// run is the goroutine of the pacer.
func (p *pacer) run(t timer) {
	for t.wait() {
		p.release()
		if !p.rearm() {
			return
		}
	}
}

// yieldAfter is how long the pacer goes on while something is always due. Then it waits
// for the timer, although that is due too, so that other goroutines can run.
const yieldAfter = 200 * time.Microsecond

// release lets what is due leave: one item of each tree, in turn.
func (p *pacer) release() {
	begin := time.Now()
	for now := begin; now.Sub(begin) < yieldAfter; now = time.Now() {
		a := p.pop(now)
		if a == nil {
			return
		}
		releaseOne(now, a.node)
	}
}

// set implements waker. The caller holds the lock of its tree.
func (p *pacer) set(a *alarm, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alarms.set(a, at)
	if p.unowned {
		p.startOrStop()
	}
	if p.alarms.first().Before(p.armed) {
		p.arm()
	}
}

// startOrStop starts the goroutine of an unowned pacer if something waits, and wakes it to
// end if nothing waits any more. The caller holds mu.
func (p *pacer) startOrStop() {
	switch waits, now := len(p.alarms) > 0, time.Now(); {
	case waits && p.timer == nil:
		p.timer, p.armed = newTimer(), limit.Never
		go p.run(p.timer)
	case !waits && p.timer != nil && p.armed.After(now):
		p.armed = now
		p.timer.set(now)
	}
}

// pop takes out an alarm that is due at now.
func (p *pacer) pop(now time.Time) *alarm {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.alarms) == 0 || p.alarms[0].at.After(now) {
		return nil
	}
	a := p.alarms[0]
	p.alarms.remove(a)
	return a
}

// rearm sets the timer to the earliest alarm after it was due. It reports whether the pacer
// goes on.
func (p *pacer) rearm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unowned && len(p.alarms) == 0 {
		p.timer.close()
		p.timer = nil
		return false
	}
	p.arm()
	return true
}

// arm sets the timer to the earliest alarm. The caller holds mu.
func (p *pacer) arm() {
	p.armed = p.alarms.first()
	p.timer.set(p.armed)
}

// releaseOne lets the item of a tree leave that may leave at now, and sets the alarm for
// the next. n was the root of the tree when the alarm was set.
func releaseOne(now time.Time, n *node) {
	it := hand(now, n)
	if it == nil {
		return
	}
	from := it.class
	it.Owner.Leave(now)
	from.handing.Store(false)
}

// hand is Release for the pacer. It sets handing: nothing overtakes the item in its class
// until the caller has told the owner and clears handing.
func hand(now time.Time, n *node) *Item {
	root, now := n.lockAt(now)
	defer root.mu.Unlock()
	it := release(now, root)
	if it != nil {
		it.class.handing.Store(true)
	}
	root.wake(now)
	return it
}

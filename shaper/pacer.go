package shaper

import (
	"sync"
	"time"

	"shaper/limit"
)

// A pacer wakes trees of classes at their departure times. It has one goroutine, one timer
// and absolute deadlines for all of them, so that lateness never adds up and nothing
// polls.
type pacer struct {
	done    chan struct{} // closed when the goroutine has ended
	unowned bool          // nobody closes it: it has a goroutine and a timer only while something waits

	mu     sync.Mutex // taken last, under the lock of a tree
	timer  timer      // nil: nobody owns the pacer, and nothing waits
	alarms alarms     // one for each tree in which something waits
	armed  time.Time  // what the timer is set to
}

// A timer is one absolute deadline, which can be moved while somebody waits for it.
type timer interface {
	// set moves the deadline; limit.Never stops the timer. It may be called
	// while another goroutine waits, but by one goroutine at a time.
	set(at time.Time)
	// wait returns true once the deadline has passed, false once the timer is
	// closed. It may return true early.
	wait() bool
	close()
}

func newPacer(t timer) *pacer {
	p := &pacer{timer: t, done: make(chan struct{}), armed: limit.Never}
	go func() {
		defer close(p.done)
		p.run(t)
	}()
	return p
}

// close stops the pacer and awaits its goroutine. What still waits never leaves.
func (p *pacer) close() {
	p.timer.close()
	<-p.done
}

func (p *pacer) run(t timer) {
	for t.wait() {
		p.release()
		if !p.rearm() {
			return
		}
	}
}

// giveWay is how long the pacer goes on while something is always due. Then it waits for
// the timer, which has gone off already, so that other goroutines can run.
const giveWay = 200 * time.Microsecond

// release lets go what is due: an item of each tree, in turn.
func (p *pacer) release() {
	begin := time.Now()
	for now := begin; now.Sub(begin) < giveWay; now = time.Now() {
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
		p.attend()
	}
	if p.alarms.first().Before(p.armed) {
		p.arm()
	}
}

// attend starts the goroutine of a pacer that nobody owns when something waits, and
// wakes it to end when nothing waits any more.
func (p *pacer) attend() {
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

// rearm sets the timer, which has gone off, to the earliest alarm. It reports whether
// the pacer goes on.
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

func (p *pacer) arm() {
	p.armed = p.alarms.first()
	p.timer.set(p.armed)
}

// releaseOne lets go the item of a tree that may leave at now, and sets the alarm for
// the one after it. n was its root when the alarm was set.
func releaseOne(now time.Time, n *node) {
	it := hand(now, n)
	if it == nil {
		return
	}
	from := it.class
	it.Owner.Leave(now)
	from.handing.Store(false)
}

// hand is Release for the pacer: until the owner of the item has been told, nothing
// overtakes it in its class.
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

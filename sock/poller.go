package sock

import (
	"net"
	"sync"
)

// Poller reports when sources are ready, and gives turns. One goroutine, that of Run, serves
// many sources; so they need none of their own. All methods but Run may be called by any
// goroutine.
type Poller struct {
	sleeper sleeper // set by newPoller

	// mu guards the fields below. The locks of sessions and of ends in memory are taken
	// before it.
	mu      sync.Mutex
	watched map[uint64]Watcher // by key
	lastKey uint64
	again   []Turner // those that are due for a turn, in order
	asleep  bool     // Run waits for news, or is about to; never true once closed
	closed  bool

	turning []Turner // have their turn; of the goroutine of Run
}

// sleeper is how a poller waits: for the kernel's events, or for nothing but wake. Only the
// poller's goroutine calls run and release.
type sleeper interface {
	// run reports events to the watchers of p and calls its turn, until that returns false. In
	// between it waits, but only if rest returns true.
	run(p *Poller)
	// wake ends a sleep.
	wake()
	// release closes what the sleeper has open.
	release()

	// add begins to watch a descriptor, under a key; remove ends that.
	add(fd int, events Events, key uint64) error
	remove(fd int)
}

// Source is what a poller can watch: an end or a listener.
type Source interface {
	// watch begins to report events to p, under a key; unwatch ends that. The lock of p
	// is held.
	watch(p *Poller, events Events, key uint64) error
	unwatch(p *Poller)
}

// Watcher receives the events of a source, with the key that Watch has returned. The
// poller's goroutine calls Ready, and holds no lock.
type Watcher interface {
	Ready(key uint64, events Events)
}

// Turner takes turns on the poller's goroutine, to go on with its work. It embeds a Due.
type Turner interface {
	// Turn does a part of the work. The poller holds no lock.
	Turn()
	due() *Due
}

// Due is part of a Turner. It is true if the Turner is due for a turn: it gets only one,
// however often Revisit is called. The poller's lock guards it.
type Due bool

func (d *Due) due() *Due { return d }

func newPoller(s sleeper) *Poller { return &Poller{sleeper: s, watched: map[uint64]Watcher{}} }

// Watch reports the events of s to w, until Forget. A key is never 0. Watch returns
// net.ErrClosed if the poller is closed.
func (p *Poller) Watch(s Source, events Events, w Watcher) (key uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	p.lastKey++
	if err := s.watch(p, events, p.lastKey); err != nil {
		return 0, err
	}
	p.watched[p.lastKey] = w
	return p.lastKey, nil
}

// Forget undoes Watch. The caller then closes the source: the kernel forgets a socket when
// its last descriptor is closed. If the socket has other descriptors, the caller must call
// Remove first. An event that is on its way has no effect, since its key is unknown.
func (p *Poller) Forget(key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watched, key)
}

// Remove ends the watch of a source that stays open, so that another poller may watch it. Call
// Forget, too.
func (p *Poller) Remove(s Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		s.unwatch(p)
	}
}

// Revisit makes t due for a turn, after those that are due already.
func (p *Poller) Revisit(t Turner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revisit(t)
}

// revisit is Revisit, with mu held.
func (p *Poller) revisit(t Turner) {
	if d := t.due(); !*d {
		*d = true
		p.again = append(p.again, t)
		p.wake()
	}
}

// Waiting returns how many turns are due.
func (p *Poller) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.again)
}

// Close ends Run. Nobody may need the poller any more.
func (p *Poller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.wake() // for the last time: after Run, its descriptor may be another's
}

// wake wakes Run if it is asleep. mu is held.
func (p *Poller) wake() {
	if p.asleep {
		p.asleep = false
		p.sleeper.wake()
	}
}

// Run reports events and gives turns, until the poller is closed.
func (p *Poller) Run() {
	defer p.sleeper.release()
	p.sleeper.run(p)
}

// turn gives a turn to each of those that are due for one. It returns false if the poller is
// closed.
func (p *Poller) turn() bool {
	goesOn := p.take()
	for i, t := range p.turning {
		t.Turn()
		p.turning[i] = nil
	}
	p.turning = p.turning[:0]
	return goesOn
}

// take makes those that are due for a turn the ones that have it. Then none is due. It returns
// false if the poller is closed.
func (p *Poller) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.again {
		*t.due() = false
	}
	p.turning, p.again = p.again, p.turning
	return !p.closed
}

// rest notes that Run is going to wait. It returns false if Run must not, because a turn is due
// or the poller is closed.
func (p *Poller) rest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = len(p.again) == 0 && !p.closed
	return p.asleep
}

// rise notes that Run waits no more, so that nobody wakes it.
func (p *Poller) rise() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = false
}

// ready reports the events of the source with a key, if it is not forgotten.
func (p *Poller) ready(key uint64, events Events) {
	p.mu.Lock()
	w := p.watched[key]
	p.mu.Unlock()
	if w != nil {
		w.Ready(key, events)
	}
}

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
	again   []Turner // due for a turn
	asleep  bool     // Run waits for news, or is about to; never true once closed
	closed  bool
}

// sleeper is how a poller waits: for the kernel's events, or for nothing but wake. Only the
// poller's goroutine calls sleep, report and release.
type sleeper interface {
	// sleep waits for news. If wanted returns true, it waits only for a moment, or not at
	// all. It returns false if it cannot go on.
	sleep(wanted func() bool) bool
	// report reports the events that sleep has found to the watchers of p.
	report(p *Poller)
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

// Remove ends the watch of a source that stays open.
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
	var again []Turner
	wanted := p.wanted
	for p.rest() && p.sleeper.sleep(wanted) {
		p.sleeper.report(p)
		again = p.take(again[:0])
		for i, t := range again {
			t.Turn()
			again[i] = nil
		}
	}
}

// rest notes that Run is going to wait, unless a turn is due. It returns false if the poller
// is closed.
func (p *Poller) rest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = len(p.again) == 0 && !p.closed
	return !p.closed
}

// wanted reports whether Run must not wait, because a turn is due or the poller is closed.
func (p *Poller) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.asleep
}

// take appends to into those that are due for a turn. Then none is due.
func (p *Poller) take(into []Turner) []Turner {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = false
	for _, t := range p.again {
		*t.due() = false
	}
	into = append(into, p.again...)
	clear(p.again)
	p.again = p.again[:0]
	return into
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

package sock

import (
	"net"
	"sync"
)

// Poller tells when ends are ready: one goroutine, that of Run, for many ends, which then
// need none of their own.
type Poller struct {
	sleeper sleeper

	mu      sync.Mutex         // guards what follows; the locks of sessions and of ends in memory come before it
	watched map[uint64]Watcher // by their keys
	lastKey uint64
	again   []Turner // that want another turn
	asleep  bool     // waiting for news, or about to: it is to be woken; never once closed
	closed  bool
}

// sleeper is how a poller waits: for the kernel's events, or for nothing but wake.
type sleeper interface {
	// sleep waits for news, and returns false if it cannot go on. It waits for a moment
	// only if wanted returns true.
	sleep(wanted func() bool) bool
	// tell tells p of the events that sleep has found.
	tell(p *Poller)
	wake()
	release()

	// add begins to watch a descriptor, under a key; remove ends that.
	add(fd int, events Events, key uint64) error
	remove(fd int)
}

// Source is what a poller watches.
type Source interface {
	watch(p *Poller, events Events, key uint64) error
	unwatch(p *Poller)
}

// Watcher is told of the events of an end, under the key that Watch has returned.
type Watcher interface {
	Ready(key uint64, events Events)
}

// Turner has something to go on with. It embeds a Due.
type Turner interface {
	Turn()
	due() *Due
}

// Due is part of a Turner: whether it is to have another turn, so that it has one, however
// many ask for it. The poller's lock guards it.
type Due bool

func (d *Due) due() *Due { return d }

func newPoller(s sleeper) *Poller { return &Poller{sleeper: s, watched: map[uint64]Watcher{}} }

// Watch has w told of the events of s, until Forget. No key is 0.
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

// Forget undoes Watch; the end is to be closed. An event that is on its way comes to nothing,
// since its key means nothing any more. The kernel forgets a socket with its last descriptor;
// one that has others is to be removed before.
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

// Revisit gives another turn, after those of the others.
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

// Close ends Run, which nobody may need any more.
func (p *Poller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.wake() // for the last time: what it wakes by may be another's soon
}

// wake ends a wait for news; mu is held.
func (p *Poller) wake() {
	if p.asleep {
		p.asleep = false
		p.sleeper.wake()
	}
}

// Run tells of events and gives turns, until the poller is closed.
func (p *Poller) Run() {
	defer p.sleeper.release()
	var again []Turner
	wanted := p.wanted
	for p.rest() && p.sleeper.sleep(wanted) {
		p.sleeper.tell(p)
		again = p.take(again[:0])
		for i, t := range again {
			t.Turn()
			again[i] = nil
		}
	}
}

// rest notes that Run is going to wait, unless somebody wants another turn. It returns false
// once the poller is closed.
func (p *Poller) rest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = len(p.again) == 0 && !p.closed
	return !p.closed
}

// wanted reports whether somebody wants another turn.
func (p *Poller) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.asleep
}

// take returns those that want another turn.
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

// ready tells of the events of a source.
func (p *Poller) ready(key uint64, events Events) {
	p.mu.Lock()
	w := p.watched[key]
	p.mu.Unlock()
	if w != nil {
		w.Ready(key, events)
	}
}

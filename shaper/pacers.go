package shaper

import (
	"sync/atomic"
	"time"

	"shaper/limit"
	"shaper/stats"
)

// pacers spread trees over several pacers, so that trees do not wait for each other's
// system calls. A tree stays with its pacer: what leaves it, leaves one after the other.
type pacers struct {
	all  []*pacer
	next atomic.Uint32 // counts the trees that have a pacer
}

// newPacers returns a pacer for each timer.
func newPacers(timers []timer) *pacers {
	s := &pacers{}
	for _, t := range timers {
		s.all = append(s.all, newPacer(t))
	}
	return s
}

// set implements waker for a tree in which nothing has waited yet: one of the pacers
// becomes its waker. They take turns.
func (s *pacers) set(a *alarm, now, at time.Time, gap bool) {
	if at == limit.Never {
		return
	}
	p := s.all[int(s.next.Add(1))%len(s.all)]
	a.node.waker = p
	p.set(a, now, at, gap)
}

func (s *pacers) close() {
	for _, p := range s.all {
		p.close()
	}
}

func (s *pacers) setEarly(early bool) {
	for _, p := range s.all {
		p.setEarly(early)
	}
}

// isEarly returns what setEarly has set.
func (s *pacers) isEarly() bool {
	p := s.all[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.early
}

// lateness returns how late items have left.
func (s *pacers) lateness() (r stats.HistogramReading) {
	for _, p := range s.all {
		r = r.Plus(p.delays.Read())
	}
	return r
}

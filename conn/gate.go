package conn

import (
	"slices"
	"sync"
)

// gate bounds how many are inside: the sessions of a listener.
type gate struct {
	mu      sync.Mutex
	inside  int
	max     int
	waiting []*tcpSocket // that have a turn when there may be room
}

func (g *gate) setMax(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.max = n
	g.admit()
}

// wake lets the sockets that wait look again.
func (g *gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit()
}

// admit is wake, with mu held.
func (g *gate) admit() {
	for i, t := range g.waiting {
		t.poller.Revisit(t)
		g.waiting[i] = nil
	}
	g.waiting = g.waiting[:0]
}

// enter enters if there is room now; else the socket waits for its turn.
func (g *gate) enter(t *tcpSocket) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside < g.max {
		g.inside++
		return true
	}
	if !slices.Contains(g.waiting, t) {
		g.waiting = append(g.waiting, t)
	}
	return false
}

// tryEnter is enter for what does not wait.
func (g *gate) tryEnter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.max {
		return false
	}
	g.inside++
	return true
}

func (g *gate) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside == 0
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

package conn

import (
	"slices"
	"sync"
)

// gate bounds how many sessions are inside. The zero gate lets none in.
type gate struct {
	// mu guards the fields below. The lock of a poller comes after it.
	mu      sync.Mutex
	inside  int
	max     int
	waiting []*tcpSocket // get a turn when there may be room
}

// setMax sets the bound. Those inside stay, even if there are more.
func (g *gate) setMax(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.max = n
	g.admit()
}

// wake gives the waiting sockets a turn, in which they may try again.
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

// enter enters if there is room. If not, it returns false, and the socket gets a turn when there
// may be room.
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

// tryEnter enters if there is room, and otherwise returns false.
func (g *gate) tryEnter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.max {
		return false
	}
	g.inside++
	return true
}

// empty reports whether nobody is inside.
func (g *gate) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside == 0
}

// leave undoes enter or tryEnter.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

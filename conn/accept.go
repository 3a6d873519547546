package conn

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// tcpSocket is a bound socket that connections come from.
type tcpSocket struct {
	server   *Server
	listener net.Listener // *net.TCPListener; ownListener for Probe
	service  atomic.Pointer[service]
	closed   atomic.Bool
}

func (s *Server) bindTCP(at address) (bound, error) {
	l, err := s.listenTCP(at.text)
	if err != nil {
		return nil, err
	}
	return &tcpSocket{server: s, listener: l}, nil
}

func (t *tcpSocket) serve(sv *service) {
	t.retarget(sv)
	t.server.wg.Go(t.accept)
}

func (t *tcpSocket) retarget(sv *service) {
	if old := t.service.Swap(sv); old != nil && old != sv {
		old.gate.wake() // accept may wait there
	}
}

func (t *tcpSocket) leadsTo() *service { return t.service.Load() }

func (t *tcpSocket) local() localAddr { return localAddr{"tcp", addrPortOf(t.listener.Addr())} }

func (t *tcpSocket) close() {
	t.closed.Store(true)
	t.listener.Close()
	if sv := t.service.Load(); sv != nil {
		sv.gate.wake()
	}
}

// accept makes a session of each connection, until the socket is closed. Where
// accepting fails for want of descriptors or memory, it tries again, ever more
// slowly up to maxBackoff, since the connection waits in the kernel meanwhile.
func (t *tcpSocket) accept() {
	backoff := minBackoff
	for t.awaitRoom((*gate).await) != nil {
		client, err := t.listener.Accept()
		switch {
		case err == nil:
			backoff = minBackoff
			t.accepted(client.(streamConn))
		case errors.Is(err, net.ErrClosed):
			return
		default:
			t.failed(err, backoff)
			time.Sleep(backoff)
			backoff = min(2*backoff, maxBackoff)
		}
	}
}

// accepted starts the session of a connection. Another socket of the listener
// may have taken the room meanwhile, or a reload; then this waits once more.
func (t *tcpSocket) accepted(client streamConn) {
	if sv := t.awaitRoom((*gate).enter); sv != nil {
		t.server.start(client, sv)
	} else {
		reset(client)
	}
}

// awaitRoom waits, by await or enter, until the service that the socket leads to
// has room for one more session; nil when the socket is closed.
func (t *tcpSocket) awaitRoom(wait func(*gate, func() bool) bool) *service {
	for !t.closed.Load() {
		sv := t.service.Load()
		if wait(&sv.gate, func() bool { return t.closed.Load() || t.service.Load() != sv }) {
			return sv
		}
	}
	return nil
}

// Bounds of the pause after accept failed.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
)

// failed counts an accept error, and logs the first of a row and then each at
// the longest pause.
func (t *tcpSocket) failed(err error, backoff time.Duration) {
	sv := t.service.Load()
	sv.stats.AcceptErrors.Add(1)
	if backoff == minBackoff || backoff == maxBackoff {
		t.server.log.Error("accept failed; trying again", "listener", sv.conf.Load().Name, "err", err)
	}
}

// gate bounds how many are inside: the sessions of a listener.
type gate struct {
	mu     sync.Mutex
	cond   *sync.Cond
	inside int
	max    int
}

func (g *gate) init() { g.cond = sync.NewCond(&g.mu) }

func (g *gate) setMax(n int) {
	g.mu.Lock()
	g.max = n
	g.mu.Unlock()
	g.cond.Broadcast()
}

// wake has those who wait look at their condition again.
func (g *gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cond.Broadcast()
}

// await waits until there is room; false when giveUp says so first.
func (g *gate) await(giveUp func() bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.inside >= g.max {
		if giveUp() {
			return false
		}
		g.cond.Wait()
	}
	return true
}

// enter is await and tryEnter in one.
func (g *gate) enter(giveUp func() bool) bool {
	for g.await(giveUp) {
		if g.tryEnter() {
			return true
		}
	}
	return false
}

// tryEnter enters if there is room now.
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
	g.cond.Broadcast() // one that only awaits room may be among those who wait
}

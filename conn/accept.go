package conn

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcpSocket is a bound socket that connections come from.
type tcpSocket struct {
	server  *Server
	poller  *poller // that accepts
	addr    net.Addr
	ours    bool // it takes connections of this process only
	service atomic.Pointer[service]
	backoff time.Duration // until accept is tried again, after it has failed
	retry   time.Time     // when that is
	due

	mu  sync.Mutex
	fd  int    // -1: closed
	key uint64 // of the poller
}

// descriptorListener is a *net.TCPListener; for Probe, a *net.UnixListener.
type descriptorListener interface {
	net.Listener
	syscall.Conn
}

func (s *Server) bindTCP(at address) (bound, error) {
	l, err := s.listenTCP(at.text)
	if err != nil {
		return nil, err
	}
	return s.newTCPSocket(l)
}

// newTCPSocket takes over a listener.
func (s *Server) newTCPSocket(l descriptorListener) (*tcpSocket, error) {
	defer l.Close()
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	t := &tcpSocket{server: s, poller: s.pollers[0], addr: l.Addr(), backoff: minBackoff}
	raw.Control(func(fd uintptr) { t.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	unix.SetsockoptInt(t.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // what it accepts inherits this
	// Events may come from here on.
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.key, err = t.poller.watch(t.fd, t); err != nil {
		unix.Close(t.fd)
		return nil, err
	}
	return t, nil
}

func (t *tcpSocket) serve(sv *service) {
	t.service.Store(sv)
	t.poller.revisit(t) // for what has come before
}

func (t *tcpSocket) retarget(sv *service) {
	if old := t.service.Swap(sv); old != sv {
		old.gate.wake() // the socket may wait there
	}
}

func (t *tcpSocket) leadsTo() *service { return t.service.Load() }

func (t *tcpSocket) local() localAddr { return localAddr{"tcp", addrPortOf(t.addr)} }

func (t *tcpSocket) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.poller.forget(t.key)
	t.poller.remove(t.fd) // one that was passed to us stays open elsewhere
	unix.Close(t.fd)
	t.fd = -1
}

// acceptsPerTurn bounds how many connections are accepted before others have
// their turn.
const acceptsPerTurn = 64

func (t *tcpSocket) ready(uint64, uint32) { t.turn() }

// turn makes a session of each connection that has come, for which the service
// has room: the others wait in the kernel, until a session ends.
func (t *tcpSocket) turn() {
	if time.Now().Before(t.retry) { // failed gives it another
		return
	}
	for range acceptsPerTurn {
		sv := t.service.Load()
		if sv == nil { // serve gives it another
			return
		}
		if !sv.gate.enter(t) {
			if t.service.Load() != sv { // retarget may not have seen that it waits there
				continue
			}
			return
		}
		if !t.accept(sv) {
			sv.gate.leave()
			return
		}
	}
	t.poller.revisit(t)
}

// accept starts the session of the next connection, which has entered the gate;
// false where there is none. Where accepting fails for want of descriptors or
// memory, it is tried again, ever more slowly up to maxBackoff.
func (t *tcpSocket) accept(sv *service) bool {
	client, source, err := t.next()
	switch err {
	case nil:
		t.backoff = minBackoff
	case unix.EAGAIN, unix.EBADF:
		return false
	case unix.EINTR, unix.ECONNABORTED, unix.EPERM, unix.EPROTO, unix.ENOPROTOOPT, unix.EOPNOTSUPP,
		unix.ENETDOWN, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENONET:
		// That one has gone wrong, or left, and is out of the way (accept(2)).
		t.poller.revisit(t)
		return false
	default:
		t.failed(sv, err)
		return false
	}
	if t.ours && pidOf(client) != os.Getpid() {
		closeNow(client)
		t.poller.revisit(t)
		return false
	}
	t.server.start(client, source, addrPortOf(t.addr).Port(), sv)
	return true
}

// next returns the descriptor of the next connection, and whose it is.
func (t *tcpSocket) next() (fd int, source netip.AddrPort, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return acceptNow(t.fd)
}

// Bounds of the pause after accept failed.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
)

// failed counts an accept error, and logs the first of a row and then each at
// the longest pause.
func (t *tcpSocket) failed(sv *service, err error) {
	sv.stats.AcceptErrors.Add(1)
	if t.backoff == minBackoff || t.backoff == maxBackoff {
		t.server.log.Error("accept failed; trying again", "listener", sv.terms.Load().Name, "err", err)
	}
	t.retry = time.Now().Add(t.backoff)
	time.AfterFunc(t.backoff, func() { t.poller.revisit(t) })
	t.backoff = min(2*t.backoff, maxBackoff)
}

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

// wake has the sockets that wait look again.
func (g *gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit()
}

// admit is wake, with mu held.
func (g *gate) admit() {
	for i, t := range g.waiting {
		t.poller.revisit(t)
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

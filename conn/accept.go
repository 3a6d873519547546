package conn

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"shaper/sock"
)

// tcpSocket is a bound socket that connections come from.
type tcpSocket struct {
	server   *Server
	poller   *sock.Poller // that accepts
	listener sock.Listener
	service  atomic.Pointer[service]
	backoff  time.Duration // until accept is tried again, after it has failed
	retry    time.Time     // when that is
	sock.Due

	key uint64 // of the poller
}

func (s *Server) bindTCP(at address) (bound, error) {
	l, err := s.inherited.listenTCP(s.network, at.text)
	if err != nil {
		return nil, err
	}
	return s.newTCPSocket(l)
}

// newTCPSocket takes over a listener. Nothing is accepted before serve.
func (s *Server) newTCPSocket(l sock.Listener) (_ *tcpSocket, err error) {
	t := &tcpSocket{server: s, poller: s.pollers[0], listener: l, backoff: minBackoff}
	if t.key, err = t.poller.Watch(l, sock.All, t); err != nil {
		l.Close()
		return nil, err
	}
	return t, nil
}

func (t *tcpSocket) serve(sv *service) {
	t.service.Store(sv)
	t.poller.Revisit(t) // for what has come before
}

func (t *tcpSocket) retarget(sv *service) {
	if old := t.service.Swap(sv); old != sv {
		old.gate.wake() // the socket may wait there
	}
}

func (t *tcpSocket) leadsTo() *service { return t.service.Load() }

func (t *tcpSocket) local() localAddr { return localAddr{"tcp", addrPortOf(t.listener.Addr())} }

func (t *tcpSocket) close() {
	t.poller.Forget(t.key)
	t.poller.Remove(t.listener) // one that was passed to us stays open elsewhere
	t.listener.Close()
}

// acceptsPerTurn bounds how many connections are accepted before others have
// their turn.
const acceptsPerTurn = 64

// Ready implements sock.Watcher.
func (t *tcpSocket) Ready(uint64, sock.Events) { t.Turn() }

// Turn implements sock.Turner: it makes a session of each connection that has come, for which the service
// has room: the others wait in the kernel, until a session ends.
func (t *tcpSocket) Turn() {
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
	t.poller.Revisit(t)
}

// accept starts the session of the next connection, which has entered the gate;
// false if there is none. If accepting fails for want of descriptors or
// memory, it is tried again, ever more slowly up to maxBackoff.
func (t *tcpSocket) accept(sv *service) bool {
	client, source, err := t.listener.Accept()
	switch err {
	case nil:
		t.backoff = minBackoff
	case unix.EAGAIN, unix.EBADF:
		return false
	case unix.EINTR, unix.ECONNABORTED, unix.EPERM, unix.EPROTO, unix.ENOPROTOOPT, unix.EOPNOTSUPP,
		unix.ENETDOWN, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENONET:
		// That one has gone wrong, or left, and is out of the way (accept(2)).
		t.poller.Revisit(t)
		return false
	default:
		t.failed(sv, err)
		return false
	}
	t.server.start(client, source, addrPortOf(t.listener.Addr()).Port(), sv)
	return true
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
	time.AfterFunc(t.backoff, func() { t.poller.Revisit(t) })
	t.backoff = min(2*t.backoff, maxBackoff)
}

package conn

import (
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/sock"
)

// tcpSocket is a bound socket that accepts connections. It implements bound.
type tcpSocket struct {
	// Set by newTCPSocket, and read by all.
	server   *Server
	poller   *sock.Poller // which accepts
	listener sock.Listener
	at       localAddr // where the listener is bound
	key      uint64    // by which the poller knows the socket

	service atomic.Pointer[service] // nil until serve

	// Owned by the poller's goroutine.
	backoff time.Duration // how long accept pauses if it fails
	retry   time.Time     // when the present pause ends

	sock.Due // the poller's lock guards it
}

// bindTCP binds an address, or takes the socket that systemd has passed for it. If it is a unix
// socket, who says who may connect.
func (s *Server) bindTCP(at address, who sock.Access) (bound, error) {
	l, err := s.inherited.listenTCP(s.network, at.text, who)
	if err != nil {
		return nil, err
	}
	return s.newTCPSocket(l)
}

// newTCPSocket takes ownership of l, and closes it if it fails. The socket accepts nothing
// before serve.
func (s *Server) newTCPSocket(l sock.Listener) (_ *tcpSocket, err error) {
	t := &tcpSocket{server: s, poller: s.pollers[0], listener: l, at: localAddrOf("tcp", l.Addr()), backoff: minBackoff}
	if t.key, err = t.poller.Watch(l, sock.All, t); err != nil {
		l.Close()
		return nil, err
	}
	return t, nil
}

// serve implements bound. It is called once.
func (t *tcpSocket) serve(sv *service) {
	t.service.Store(sv)
	t.poller.Revisit(t) // for connections that have come already
}

// retarget implements bound. Sessions that have begun stay with the old service.
func (t *tcpSocket) retarget(sv *service) {
	if err := t.listener.Permit(sv.terms.Load().access); err != nil {
		t.server.log.Error("cannot change who may connect", "address", t.local(), "err", err)
	}
	if old := t.service.Swap(sv); old != sv {
		old.gate.wake() // the socket may wait at the old gate
	}
}

// intercept implements bound.
func (t *tcpSocket) intercept() (undo func(), err error) { return t.listener.Intercept(policy.OwnMark) }

// leadsTo implements bound.
func (t *tcpSocket) leadsTo() *service { return t.service.Load() }

// local implements bound.
func (t *tcpSocket) local() localAddr { return t.at }

// isGone implements bound.
func (t *tcpSocket) isGone() bool { return t.listener.IsGone() }

// close implements bound. A turn that comes later accepts nothing.
func (t *tcpSocket) close() {
	t.poller.Forget(t.key)
	t.poller.Remove(t.listener) // systemd keeps a socket that it has passed open
	t.listener.Close()
}

// acceptsPerTurn bounds how many connections a socket accepts before others have their turn.
const acceptsPerTurn = 64

// Ready implements sock.Watcher.
func (t *tcpSocket) Ready(uint64, sock.Events) { t.Turn() }

// Turn implements sock.Turner: it starts a session for each connection that has come. If the
// service has no room, connections wait in the kernel until a session ends.
func (t *tcpSocket) Turn() {
	if time.Now().Before(t.retry) { // another turn comes when the pause ends
		return
	}
	for range acceptsPerTurn {
		sv := t.service.Load()
		if sv == nil { // another turn comes with serve
			return
		}
		if !sv.gate.enter(t) {
			if t.service.Load() != sv { // retarget may have woken the gate before we waited
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

// accept accepts the next connection and starts its session. The caller has entered the gate
// of sv for it. If accept returns false, no session has started, and the caller leaves the
// gate. If only that connection was bad, the socket gets another turn at once. After another
// error, such as a lack of descriptors, it gets one after a pause, which grows up to maxBackoff.
func (t *tcpSocket) accept(sv *service) bool {
	client, source, err := t.listener.Accept()
	switch err {
	case nil:
		t.backoff = minBackoff
	case unix.EAGAIN, unix.EBADF: // there is none, or the socket is closed
		return false
	case unix.EINTR, unix.ECONNABORTED, unix.EPERM, unix.EPROTO, unix.ENOPROTOOPT, unix.EOPNOTSUPP,
		unix.ENETDOWN, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENONET:
		// Only that connection has failed (accept(2)). The next one may be good.
		t.poller.Revisit(t)
		return false
	default:
		t.failed(sv, err)
		return false
	}
	t.server.start(client, source, &t.at, sv)
	return true
}

// Bounds of the pause after accept has failed.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
)

// failed counts an accept error and begins a pause. It logs the first of several errors in a
// row, and later each one that begins the longest pause, unless there are too many of all sockets.
func (t *tcpSocket) failed(sv *service, err error) {
	sv.stats.AcceptErrors.Add(1)
	if t.backoff == minBackoff || t.backoff == maxBackoff {
		t.server.failing.log(t.server.log, slog.LevelError, "accept failed; trying again", "listener", sv.terms.Load().Name, "err", err)
	}
	t.retry = time.Now().Add(t.backoff)
	time.AfterFunc(t.backoff, func() { t.poller.Revisit(t) })
	t.backoff = min(2*t.backoff, maxBackoff)
}

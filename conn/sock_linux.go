package conn

import (
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/stats"
)

// sock is a connected socket of a session, and what the poller has told of it.
// It does not block. The lock of its session guards it.
type sock struct {
	session *tcpSession // never changes
	fd      int         // -1: none, or closed
	key     uint64      // of the poller; 0: it is not watched
	tls     *tunnel     // beneath it, or about to be; nil: it is the peer's connection
	state
}

// state is what is known of a socket.
type state struct {
	readable, writable bool
	ends               bool // the peer has sent an end, or a reset: reads tell which
	broken             bool // the connection is down
	urgent             bool // there has been urgent data (tcp(7)), at which reads stop short of what is behind
	tlsVersion         uint16
}

// watch has the session told of the socket's events.
func (s *sock) watch() (err error) {
	s.key, err = s.session.poller.watch(s.fd, s)
	return err
}

// ready implements watcher.
func (s *sock) ready(key uint64, events uint32) {
	s.session.drive(func(t *tcpSession) {
		if s.key == key { // else it has been closed meanwhile
			s.told(events)
			t.proceed(s)
		}
	})
}

// told notes events.
func (s *sock) told(events uint32) {
	const down = unix.EPOLLERR | unix.EPOLLHUP
	s.readable = s.readable || events&(unix.EPOLLIN|unix.EPOLLRDHUP|down) != 0
	s.writable = s.writable || events&(unix.EPOLLOUT|down) != 0
	s.ends = s.ends || events&(unix.EPOLLRDHUP|down) != 0
	s.broken = s.broken || events&unix.EPOLLERR != 0
	s.urgent = s.urgent || events&unix.EPOLLPRI != 0
}

// is reports whether there is a socket.
func (s *sock) is() bool { return s.fd >= 0 }

// close closes the socket. What has been written still arrives.
func (s *sock) close() {
	if s.tls != nil {
		s.tls.leave()
		s.tls = nil
	}
	if !s.is() {
		return
	}
	if s.key != 0 {
		s.session.poller.forget(s.key)
	}
	closeNow(s.fd)
	s.fd, s.key, s.state = -1, 0, state{}
}

// release gives the descriptor away, which is not watched any more.
func (s *sock) release() (fd int) {
	if s.key != 0 {
		s.session.poller.forget(s.key)
		s.session.poller.remove(s.fd)
	}
	fd = s.fd
	s.fd, s.key, s.state = -1, 0, state{}
	return fd
}

// reset closes it with a RST where it is TCP: the peer sees that it did not end
// cleanly. What the kernel still held for it is discarded.
func (s *sock) reset() {
	if s.tls != nil {
		s.tls.abort()
	}
	if s.is() {
		lingerNow(s.fd)
	}
	s.close()
}

// cut reports whether the end of what can be read is none that the peer has sent.
func (s *sock) cut() bool { return s.tls != nil && s.tls.failure.Load() != nil }

// result tells from an error of the socket how the session ended.
func (s *sock) result(err error) stats.Result {
	if s.cut() {
		return s.tls.failure.Load().result
	}
	return resultOf(err)
}

// onWire does something with the descriptor of the peer's connection, if there is one.
func (s *sock) onWire(do func(fd int)) {
	switch {
	case s.tls != nil:
		s.tls.control(do)
	case s.is():
		do(s.fd)
	}
}

// empty reports whether there is nothing to read before the end.
func (s *sock) empty() bool {
	var peeked [1]byte
	n, _, err := unix.Recvfrom(s.fd, peeked[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return n == 0 && err == nil
}

// end tells the peer that nothing more comes.
func (s *sock) end() error { return shutdownNow(s.fd) }

// newTCP returns a socket that can be connected to an address.
func newTCP(to netip.AddrPort, bind netip.Addr) (fd int, err error) {
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = socketNow(family)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	setNow(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if bind.IsValid() {
		// The port is chosen when the other end is known: so there are more of them.
		setNow(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		if err := bindNow(fd, netip.AddrPortFrom(bind, 0)); err != nil {
			closeNow(fd)
			return -1, os.NewSyscallError("bind", err)
		}
	}
	return fd, nil
}

// connect begins to connect. The socket is writable when that has come to an end.
func connect(fd int, to netip.AddrPort) error {
	switch err := connectNow(fd, to); err {
	case nil, unix.EINPROGRESS, unix.EINTR:
		return nil
	default:
		return os.NewSyscallError("connect", err)
	}
}

// connected returns how connect has come to an end.
func (s *sock) connected() error {
	if !s.ends {
		return nil
	}
	if code := getNow(s.fd, unix.SOL_SOCKET, unix.SO_ERROR); code != 0 {
		return os.NewSyscallError("connect", syscall.Errno(code))
	}
	return nil
}

// setReceiveBuffer sets SO_RCVBUF, of which the kernel doubles what it is given
// for its own overhead (socket(7)).
func (s *sock) setReceiveBuffer(n int) {
	s.onWire(func(fd int) { setNow(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, n) })
	if s.tls != nil {
		s.tls.narrow(n)
	}
}

// segment returns the largest segment of the connection: some 1,400 bytes on
// most networks, 64 KiB on the loopback device; 0 for what is not TCP.
func (s *sock) segment() (n int) {
	s.onWire(func(fd int) { n = getNow(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
	return n
}

// setUserTimeout has the kernel give up on a dead peer within the idle timeout,
// where by itself it would try for longer (RFC 5482; tcp(7)).
func (s *sock) setUserTimeout(idle time.Duration) {
	if idle > 0 && idle < kernelGivesUp {
		s.onWire(func(fd int) { setNow(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(idle.Milliseconds(), 1))) })
	}
}

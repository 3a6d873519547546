package conn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"shaper/sock"
	"shaper/stats"
	"shaper/upstream"
)

// terminate starts TLS with the client on this side. When the handshake succeeds, it calls begin
// without the session's lock. If the handshake has not succeeded connect_timeout after the client
// connected, the session ends. The session's lock is held.
func (s *side) terminate(config *tls.Config, begin func()) {
	t := s.session
	by := t.started.Add(time.Duration(t.conf.ConnectTimeout))
	tn := newTunnel(s, by)
	over := func(c net.Conn) *tls.Conn { return tls.Server(c, config) }
	terminated := func(err error) (goesOn bool) {
		if goesOn = tn.terminated(err); goesOn {
			begin()
		}
		return goesOn
	}
	t.server.wg.Go(func() { tn.run(by, over, terminated) })
}

// terminated gives the session its client after the handshake, or ends the session if err is
// not nil. It reports whether the session goes on. No lock is held.
func (tn *tunnel) terminated(err error) (goesOn bool) {
	tn.session.do(func(t *tcpSession) {
		if goesOn = err == nil; goesOn {
			tn.end.take()
			return
		}
		if tn.hungUp(err) {
			t.finish(stats.Aborted)
			return
		}
		t.warn(handshakeFailed, "err", err)
		t.finish(stats.TLSFailed)
	})
	return goesOn
}

// hungUp reports whether a peer has gone without sending a byte, as health checks do.
func (tn *tunnel) hungUp(err error) bool {
	return tn.wire != nil && !tn.wire.heard && (err == io.EOF || errors.Is(err, unix.ECONNRESET))
}

// originate starts TLS with the upstream on this side. When the handshake has succeeded or failed,
// at the latest at by, it calls done with the session's lock held. That lock is held now, too.
func (s *side) originate(config *tls.Config, by time.Time, done func(error)) {
	tn := newTunnel(s, by)
	over := func(c net.Conn) *tls.Conn { return tls.Client(c, config) }
	originated := func(err error) bool { return tn.originated(err, done) }
	s.session.server.wg.Go(func() { tn.run(by, over, originated) })
}

// originated gives the session its upstream after the handshake, and calls done. If the session
// has given this upstream up, it does neither. It reports whether the tunnel is to go on: false
// in that case, and if the handshake has failed. No lock is held.
func (tn *tunnel) originated(err error, done func(error)) (goesOn bool) {
	tn.session.do(func(*tcpSession) {
		s := tn.side
		if !tn.isUsed() {
			return
		}
		if err == nil {
			tn.end.take()
			goesOn = true
			err = s.watch()
		} else {
			err = &upstream.HandshakeError{Err: err}
		}
		done(err)
	})
	return goesOn
}

// newTunnel takes the socket of s, which must be one of the kernel's, and puts a tunnel in its
// place. The handshake must end by the given time. The session's lock is held.
func newTunnel(s *side, by time.Time) *tunnel {
	t := s.session
	file := s.release().(*sock.Socket).File("tls")
	tn := &tunnel{server: t.server, session: t, side: s, file: file, outside: sock.NoSocket(), gone: make(chan struct{})}
	tn.end = &tlsEnd{Socket: sock.NoSocket(), tunnel: tn}
	s.end = tn.end
	t.server.sessions.addTunnel(tn)
	// Take the descriptors now, before later connections do. If there are none, connect
	// tries again.
	tn.open(by)
	return tn
}

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
)

// terminate ends the client's TLS at this side. The session begins, and is classified, when
// the handshake is done: within connect_timeout, or never.
func (s *side) terminate(config *tls.Config, begin func()) {
	t := s.session
	by := t.started.Add(time.Duration(t.conf.ConnectTimeout))
	tn := newTunnel(s, by)
	over := func(c net.Conn) *tls.Conn { return tls.Server(c, config) }
	done := func(err error) (goesOn bool) {
		if goesOn = tn.terminated(err); goesOn {
			begin()
		}
		return goesOn
	}
	t.server.wg.Go(func() { tn.run(by, over, done) })
}

// terminated takes the client's connection, or ends the session. It returns false if the
// session has ended.
func (tn *tunnel) terminated(err error) (goesOn bool) {
	tn.session.do(func(t *tcpSession) {
		if goesOn = err == nil; goesOn {
			tn.end.take()
			return
		}
		if tn.leftAtOnce(err) {
			t.finish(stats.Aborted)
			return
		}
		t.warn(handshakeFailed, "err", err)
		t.finish(stats.TLSFailed)
	})
	return goesOn
}

// leftAtOnce reports whether a peer has left without a word, as checks of health do.
func (tn *tunnel) leftAtOnce(err error) bool {
	return tn.wire != nil && !tn.wire.heard && (err == io.EOF || errors.Is(err, unix.ECONNRESET))
}

// originate begins TLS over the connection to the upstream, and calls met with the lock of
// the session held when the handshake is done, or has failed.
func (s *side) originate(config *tls.Config, by time.Time, met func(error)) {
	tn := newTunnel(s, by)
	over := func(c net.Conn) *tls.Conn { return tls.Client(c, config) }
	done := func(err error) bool { return tn.originated(err, met) }
	s.session.server.wg.Go(func() { tn.run(by, over, done) })
}

// originated takes the upstream's connection; false if the session has ended, or has gone on
// already.
func (tn *tunnel) originated(err error, met func(error)) (goesOn bool) {
	tn.session.do(func(*tcpSession) {
		s := tn.side
		if s.end != tn.end {
			return
		}
		if err == nil {
			tn.end.take()
			goesOn = true
			err = s.watch()
		} else {
			err = &handshakeError{err}
		}
		met(err)
	})
	return goesOn
}

// newTunnel puts a connected socket under TLS, whose handshake is to be done by a time.
// It takes over the socket of s, which must be one of the kernel. The session's lock is
// held.
func newTunnel(s *side, by time.Time) *tunnel {
	t := s.session
	file := s.release().(*sock.Socket).File("tls")
	tn := &tunnel{server: t.server, session: t, side: s, file: file, outside: sock.NoSocket(), gone: make(chan struct{})}
	tn.end = &tlsEnd{Socket: sock.NoSocket(), tunnel: tn}
	s.end = tn.end
	t.server.mu.Lock()
	t.server.tunnels[tn] = true
	t.server.mu.Unlock()
	// At once, so that connections that come later do not take what this one needs; where
	// there is nothing left, connect tries again.
	tn.open(by)
	return tn
}

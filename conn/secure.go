package conn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"shaper/stats"
)

// handshakeError is why TLS with an upstream has not come about.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// terminate has the client's TLS end here. The session begins, and is classified, when
// the handshake is done: within connect_timeout, or never.
func (t *tcpSession) terminate(config *tls.Config) {
	by := t.started.Add(time.Duration(t.conf.ConnectTimeout))
	tn := newTunnel(&t.client, by)
	over := func(c net.Conn) *tls.Conn { return tls.Server(c, config) }
	t.server.wg.Go(func() { tn.run(by, over, func(err error) bool { return t.terminated(tn, err) }) })
}

// terminated begins the session, or ends it; false where it has ended.
func (t *tcpSession) terminated(tn *tunnel, err error) (goesOn bool) {
	t.drive(func(t *tcpSession) {
		if goesOn = err == nil; goesOn {
			t.client.secured(tn)
			return
		}
		if tn.leftAtOnce(err) {
			t.finish(stats.Aborted)
			return
		}
		t.warn(handshakeFailed, "err", err)
		t.finish(stats.TLSFailed)
	})
	if goesOn {
		t.enter()
	}
	return goesOn
}

// leftAtOnce reports whether a peer has left without a word, as checks of health do.
func (tn *tunnel) leftAtOnce(err error) bool {
	return tn.wire != nil && !tn.wire.heard && (err == io.EOF || errors.Is(err, unix.ECONNRESET))
}

// originate begins TLS over the connection to the upstream.
func (t *tcpSession) originate(config *tls.Config) {
	d := &t.dialling
	d.timer.Stop()
	by := d.attemptBy
	tn := newTunnel(&t.upstream, by)
	over := func(c net.Conn) *tls.Conn { return tls.Client(c, config) }
	t.server.wg.Go(func() { tn.run(by, over, func(err error) bool { return t.originated(tn, err) }) })
}

// originated goes on with an upstream that has been met, or with the next address;
// false where the session has ended, or has gone on already.
func (t *tcpSession) originated(tn *tunnel, err error) (goesOn bool) {
	t.drive(func(t *tcpSession) {
		if t.upstream.tls != tn {
			return
		}
		if err == nil {
			t.upstream.secured(tn)
			goesOn = true
			err = t.upstream.watch()
		} else {
			err = &handshakeError{err}
		}
		if err != nil {
			t.attemptFailed(err)
			return
		}
		t.established()
	})
	return goesOn
}

// secured gives a socket its descriptor, that of an end of a pair.
func (s *sock) secured(tn *tunnel) { s.fd, tn.outside, s.tlsVersion = tn.outside, -1, tn.version }

// unreached tells from why no upstream was reached how the session ends.
func (d *dialling) unreached() stats.Result {
	for _, err := range d.errs {
		if errors.As(err, new(*handshakeError)) {
			return stats.TLSFailed
		}
	}
	return stats.DialFailed
}

// tunnelFailed notes that the peer beneath a tunnel is gone. The session ends when it
// has read what came before. One that has sent a FIN and no close_notify is not broken:
// nothing is known to be lost.
func (t *tcpSession) tunnelFailed(tn *tunnel, f *tunnelFailure) {
	t.drive(func(t *tcpSession) {
		s := tn.sock
		if s.tls != tn {
			return
		}
		if f.result == stats.TLSFailed {
			t.warn(tlsFailed, "with", t.nameOf(s), "err", f.err)
		}
		s.broken = f.err != io.ErrUnexpectedEOF
		t.proceed(s)
	})
}

// unsent returns how many bytes the peer has not acknowledged; of what is on its way
// through a tunnel, any number above 0.
func (s *sock) unsent() int {
	n := outqueue(s.fd)
	if s.tls != nil && s.tls.busy.Load() { // after the pair: it is busy before that is empty
		n++
	}
	if s.tls != nil {
		s.tls.control(func(fd int) { n += outqueue(fd) })
	}
	return n
}

// outqueue is SIOCOUTQ (tcp(7)); 0 where there is none.
func outqueue(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// nameOf says which of its peers a socket of the session leads to.
func (t *tcpSession) nameOf(s *sock) string {
	if s == &t.client {
		return "the client"
	}
	return fmt.Sprintf("upstream %s", t.name)
}

// watch has the session told when the connection beneath breaks, though neither way
// waits for it: as where what the peer has sent waits for its class.
func (tn *tunnel) watch() (err error) {
	tn.control(func(fd int) { tn.key, err = tn.session.poller.watchFor(fd, unix.EPOLLET, tn) })
	return err
}

func (tn *tunnel) unwatch() {
	if tn.key != 0 {
		tn.session.poller.forget(tn.key)
	}
}

// ready implements watcher.
func (tn *tunnel) ready(_ uint64, events uint32) {
	if events&unix.EPOLLERR == 0 {
		return
	}
	tn.session.drive(func(t *tcpSession) {
		if tn.sock.tls == tn {
			tn.sock.broken = true
			t.proceed(tn.sock)
		}
	})
}

// tlsNames returns the versions of TLS with both peers, for people.
func (t *tcpSession) tlsNames() (client, upstream string) {
	return versionName(t.client.tlsVersion), versionName(t.upstream.tlsVersion)
}

// versionName is "1.3" for TLS 1.3; "" for none.
func versionName(version uint16) string {
	if version < tls.VersionTLS10 {
		return ""
	}
	return fmt.Sprintf("1.%d", version-tls.VersionTLS10)
}

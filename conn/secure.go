package conn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"shaper/sock"
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
	t.server.wg.Go(func() { tn.run(by, over, tn.terminated) })
}

// terminated begins the session, or ends it; false where it has ended.
func (tn *tunnel) terminated(err error) (goesOn bool) {
	tn.session.drive(func(t *tcpSession) {
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
	if goesOn {
		tn.session.enter()
	}
	return goesOn
}

// leftAtOnce reports whether a peer has left without a word, as checks of health do.
func (tn *tunnel) leftAtOnce(err error) bool {
	return tn.wire != nil && !tn.wire.heard && (err == io.EOF || errors.Is(err, unix.ECONNRESET))
}

// originate begins TLS over the connection to the upstream.
func (d *dialling) originate(config *tls.Config) {
	t, by := d.session, d.attemptBy
	d.timer.Stop()
	tn := newTunnel(&t.upstream, by)
	over := func(c net.Conn) *tls.Conn { return tls.Client(c, config) }
	t.server.wg.Go(func() { tn.run(by, over, tn.originated) })
}

// originated goes on with an upstream that has been met, or with the next address;
// false where the session has ended, or has gone on already.
func (tn *tunnel) originated(err error) (goesOn bool) {
	tn.session.drive(func(t *tcpSession) {
		if t.upstream.end != tn.end {
			return
		}
		if err == nil {
			tn.end.take()
			goesOn = true
			err = t.upstream.watch()
		} else {
			err = &handshakeError{err}
		}
		if err != nil {
			t.dialling.attemptFailed(err)
			return
		}
		t.dialling.established()
	})
	return goesOn
}

// unreached tells from why no upstream was reached how the session ends.
func (d *dialling) unreached() stats.Result {
	for _, err := range d.errs {
		if errors.As(err, new(*handshakeError)) {
			return stats.TLSFailed
		}
	}
	return stats.DialFailed
}

// failed notes that the peer beneath the tunnel is gone. The session ends when it has read
// what came before. One that has sent a FIN and no close_notify is not broken: nothing is
// known to be lost.
func (tn *tunnel) failed(f *tunnelFailure) {
	tn.session.drive(func(t *tcpSession) {
		s := tn.side
		if s.end != tn.end {
			return
		}
		if f.result == stats.TLSFailed {
			t.warn(tlsFailed, "with", s.name(), "err", f.err)
		}
		s.Broken = f.err != io.ErrUnexpectedEOF
		t.proceed(s)
	})
}

// name says for people which of its peers a side of the session leads to.
func (s *side) name() string {
	if s == &s.session.client {
		return "the client"
	}
	return fmt.Sprintf("upstream %s", s.session.name)
}

// watch has the session told when the connection beneath breaks, though neither way
// waits for it: as where what the peer has sent waits for its class.
func (tn *tunnel) watch() (err error) {
	tn.control(func(d sock.Descriptor) { tn.key, err = tn.session.poller.Watch(d, sock.OnlyBroken, tn) })
	return err
}

func (tn *tunnel) unwatch() {
	if tn.key != 0 {
		tn.session.poller.Forget(tn.key)
	}
}

// Ready implements sock.Watcher.
func (tn *tunnel) Ready(_ uint64, events sock.Events) {
	if events&sock.Broken == 0 {
		return
	}
	tn.session.drive(func(t *tcpSession) {
		if s := tn.side; s.end == tn.end {
			s.Broken = true
			t.proceed(s)
		}
	})
}

// versionName is "1.3" for an end over TLS 1.3; "" for one without TLS.
func versionName(end sock.End) string {
	if end, ok := end.(*tlsEnd); ok && end.version >= tls.VersionTLS10 {
		return fmt.Sprintf("1.%d", end.version-tls.VersionTLS10)
	}
	return ""
}

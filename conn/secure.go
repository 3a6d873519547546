package conn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"shaper/stats"
)

// terminate ends the client's TLS here. The session begins, and is classified, when
// the handshake is done: within connect_timeout, or never.
func (t *tcpSession) terminate(config *tls.Config) {
	by := t.started.Add(time.Duration(t.conf.ConnectTimeout))
	tn := newTunnel(&t.client, by)
	over := func(c net.Conn) *tls.Conn { return tls.Server(c, config) }
	t.server.wg.Go(func() { tn.run(by, over, tn.terminated) })
}

// terminated begins the session, or ends it. It returns false if the session has ended.
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
// false if the session has ended, or has gone on already.
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

package conn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"shaper/sock"
	"shaper/stats"
)

// fail cuts TLS, and notes why if it is the first to do so. It returns false, for inward and
// outward to return. No lock is held.
func (tn *tunnel) fail(err error) bool {
	f := &tunnelFailure{err, stats.ResetByPeer}
	if isTLS(err) {
		f.result = stats.TLSFailed
	}
	if tn.isAborted() || !tn.failure.CompareAndSwap(nil, f) {
		return false
	}
	tn.failed(f)
	tn.abort()
	return false
}

// isTLS reports whether an error comes from TLS, and not from the connection beneath it.
func isTLS(err error) bool {
	var op *net.OpError
	var header tls.RecordHeaderError
	return errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error") || errors.As(err, &header)
}

// failed tells the session that TLS was cut. The session ends when it has read what came
// before. After a FIN without close_notify the side is not broken: perhaps nothing is lost.
func (tn *tunnel) failed(f *tunnelFailure) {
	tn.session.do(func(t *tcpSession) {
		s := tn.side
		if !tn.isUsed() {
			return
		}
		if f.result == stats.TLSFailed {
			t.warn(tlsFailed, "with", s.name(), "err", f.err)
		}
		s.Broken = f.err != io.ErrUnexpectedEOF
		t.driver.changed(s)
	})
}

// broke tells the session that the connection beneath is down.
func (tn *tunnel) broke() {
	tn.session.do(func(t *tcpSession) {
		if s := tn.side; tn.isUsed() {
			s.Broken = true
			t.driver.changed(s)
		}
	})
}

// isUsed reports whether the session still has the tunnel's end. The session's lock is held.
func (tn *tunnel) isUsed() bool { return beneath(tn.side.end) == tn.end }

// abort makes the tunnel end with a reset, and does not wait for that. It returns false if that
// was done before.
func (tn *tunnel) abort() bool {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.aborted {
		return false
	}
	tn.aborted = true
	close(tn.gone)
	if tn.wire != nil {
		tn.interrupt()
	}
	return true
}

// interrupt wakes the goroutines, whatever they wait for. mu is held.
func (tn *tunnel) interrupt() {
	tn.wire.streamConn.SetDeadline(time.Unix(1, 0))
	tn.inside.SetDeadline(time.Unix(1, 0))
}

func (tn *tunnel) isAborted() bool {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return tn.aborted
}

// leave ends the tunnel when it has sent what the session has written, as the kernel does after
// close(2). If the handshake is not done, it aborts. The session's lock is held.
func (tn *tunnel) leave() {
	tn.mu.Lock()
	attached := tn.attached
	tn.leaving = attached
	tn.mu.Unlock()
	if !attached {
		tn.abort()
		return
	}
	tn.linger()
}

// lingerTime bounds how long each piece of what remains of an ended session takes to leave.
const lingerTime = time.Minute

// linger gives the next piece of what remains of an ended session lingerTime to leave. Behind the
// last one, the peer has lingerTimeout to say that it ends, too: nobody counts the tunnel any more.
// After that, the kernel alone sends what has not arrived, as it does after close(2).
func (tn *tunnel) linger() {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	switch {
	case !tn.leaving || tn.aborted:
	case tn.told:
		tn.wire.streamConn.SetReadDeadline(time.Now().Add(lingerTimeout))
	default:
		tn.wire.streamConn.SetWriteDeadline(time.Now().Add(lingerTime))
	}
}

// close closes everything the tunnel has. It resets the connection, unless ok. Its last goroutine
// calls it.
func (tn *tunnel) close(ok bool) {
	tn.unwatch()
	tn.mu.Lock()
	if tn.wire == nil {
		sock.Descriptor(tn.file.Fd()).Abandon()
		tn.file.Close()
	} else {
		if !ok || tn.aborted {
			tn.wire.abandon()
		}
		tn.wire.Close()
		tn.inside.Close()
	}
	tn.outside.Close()
	tn.mu.Unlock()
	tn.server.sessions.removeTunnel(tn)
}

// unwatch undoes watch.
func (tn *tunnel) unwatch() {
	if tn.key != 0 {
		tn.session.poller.Forget(tn.key)
	}
}

package conn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/buffer"
	"shaper/sock"
	"shaper/stats"
)

// tunnel is the TLS of one side of a session. crypto/tls wants a connection that blocks, and
// sessions never wait. So the session has one end of a socket pair as its end, and two
// goroutines copy between the other end and the peer:
//
//	session  <- pair ->  tunnel  <- TLS over TCP ->  peer
//
// Both directions hold a bounded number of bytes, so back-pressure reaches the other side. A
// close_notify of the peer ends the pair, and an end of the pair sends a close_notify. If TLS
// ends in any other way, it is cut: the session reads what came before, and then that the
// peer has reset the connection.
type tunnel struct {
	// Set by newTunnel, and read by all.
	server  *Server
	session *tcpSession
	side    *side         // of the session, above the tunnel
	end     *tlsEnd       // of that side
	gone    chan struct{} // closed when the session has given the tunnel up

	// Owned by the goroutine of run, and after that by the last of inward and outward.
	tls     *tls.Conn
	version uint16       // of TLS
	outside *sock.Socket // the session's end of the pair; closed: there is none, or the session has it
	key     uint64       // by which the poller knows the connection; 0: it does not watch it

	// Safe for concurrent use.
	failure  atomic.Pointer[tunnelFailure] // why TLS was cut; nil: it was not
	writeErr atomic.Pointer[error]         // why outward cannot write, while inward still reads
	cut      atomic.Bool                   // a direction has not ended well
	finished atomic.Int32                  // directions that have ended
	busy     atomic.Bool                   // outward may hold bytes that it has not written yet

	// mu guards all that follows. It comes after the lock of the session, and before that of a
	// poller. Only newTunnel and the goroutine of run set file, wire and inside, so that goroutine
	// and those that it starts read them without mu.
	mu       sync.Mutex
	file     *os.File      // the connection, until there are descriptors for the rest
	wire     *wire         // nil: open has not succeeded yet
	inside   *net.UnixConn // the tunnel's end of the pair
	aborted  bool          // gone is closed
	leaving  bool          // the session has ended well, and its last bytes still leave
	told     bool          // outward has sent a close_notify
	attached bool          // the handshake is done
}

// tunnelFailure says why TLS was cut, and how the session ends by that.
type tunnelFailure struct {
	err    error
	result stats.Result
}

func (f *tunnelFailure) Error() string { return "TLS: " + f.err.Error() }
func (f *tunnelFailure) Unwrap() error { return f.err }

// Bounds of what waits in a tunnel.
const (
	pairBuffer  = 32 << 10    // SO_SNDBUF of each end of the pair
	smallBuffer = 1 << 10     // for the next read while the peer is quiet
	recordSize  = 16 << 10    // the most that a TLS record holds (RFC 8446, 5.1)
	lingerTime  = time.Minute // for each piece of what an ended session has left behind
)

var errGone = errors.New("the session has ended")

// run does the handshake, tells done how it went, and then starts to copy. done gives the
// session its end; if the session does not want it, done returns false, and the tunnel closes.
func (tn *tunnel) run(by time.Time, over func(net.Conn) *tls.Conn, done func(error) bool) {
	defer tn.server.rescue(tn.session)
	passing := false
	defer func() {
		if !passing {
			tn.close(false)
		}
	}()
	if !done(tn.connect(by, over)) {
		return
	}
	if err := tn.watch(); err != nil {
		tn.fail(err)
		return
	}
	// New goroutines, since this one would keep the large stack that a handshake needs.
	passing = true
	tn.server.wg.Go(func() { tn.pass(tn.inward) })
	tn.server.wg.Go(func() { tn.pass(tn.outward) })
}

// pass runs inward or outward. The last of the two to end closes the tunnel.
func (tn *tunnel) pass(direction func() bool) {
	defer tn.server.rescue(tn.session)
	ok := false
	defer func() {
		if !ok {
			tn.cut.Store(true)
		}
		if tn.finished.Add(1) == 2 {
			if err := tn.writeErr.Load(); err != nil {
				tn.fail(*err)
			}
			tn.close(!tn.cut.Load())
		}
	}()
	ok = direction()
}

// connect opens the tunnel and does the handshake. It fails if that is not done at by.
func (tn *tunnel) connect(by time.Time, over func(net.Conn) *tls.Conn) error {
	for pause := dialPause; tn.wire == nil; pause = min(2*pause, maxBackoff) {
		err := tn.open(by)
		if err != nil && (!lacksDescriptors(err) || time.Now().After(by)) {
			return err
		}
		if err == nil {
			break
		}
		select {
		case <-tn.gone:
			return errGone
		case <-time.After(pause):
		}
	}
	tn.tls = over(tn.wire)
	if err := tn.tls.Handshake(); err != nil {
		return err
	}
	tn.version = tn.tls.ConnectionState().Version
	return tn.attach()
}

// open makes the connection and the pair, or neither if there are too few descriptors. Reads and
// writes of the connection fail after by.
func (tn *tunnel) open(by time.Time) error {
	c, err := net.FileConn(tn.file)
	if err != nil {
		return err
	}
	outside, inside, err := sock.NewPair()
	if err != nil {
		c.Close()
		return err
	}
	outside.Set(sock.SendBuffer, pairBuffer)
	setBuffer(inside, pairBuffer)
	tn.mu.Lock()
	defer tn.mu.Unlock()
	tn.file.Close()
	tn.outside, tn.inside, tn.wire = outside, inside, &wire{streamConn: c.(streamConn)}
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetKeepAlive(false) // idle_timeout ends dead connections
	}
	tn.wire.SetDeadline(by)
	if tn.aborted {
		tn.interrupt()
	}
	return nil
}

// attach ends the deadline of the handshake, which is done. It fails if abort was called.
func (tn *tunnel) attach() error {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.aborted {
		return errGone
	}
	tn.attached = true
	return tn.wire.streamConn.SetDeadline(time.Time{})
}

// inward copies what the peer sends to the session. It returns true after a close_notify, or if none
// came in time after the session had ended, and false if TLS was cut. While the peer is quiet, it
// holds only a small buffer.
func (tn *tunnel) inward() bool {
	small := make([]byte, smallBuffer)
	for plenty := false; ; {
		to := small
		var large *buffer.Buffer
		if plenty {
			large = buffer.Get(recordSize)
			to = large.Bytes
		}
		n, err := tn.tls.Read(to)
		if plenty = n == len(to); n > 0 {
			if _, err := tn.inside.Write(to[:n]); err != nil {
				return tn.fail(err) // the session has ended
			}
		}
		if large != nil {
			large.Put()
		}
		switch {
		case err == io.EOF && tn.writeErr.Load() != nil:
			return false // outward has the error: the kernel reports a reset only once
		case err == io.EOF && !tn.wire.ended:
			tn.inside.CloseWrite()
			return true
		case err == io.EOF:
			return tn.fail(io.ErrUnexpectedEOF)
		case errors.Is(err, os.ErrDeadlineExceeded) && !tn.isAborted():
			return true // see linger
		case err != nil:
			return tn.fail(err)
		}
	}
}

// outward copies what the session writes to the peer. It returns true after it has sent a
// close_notify, and false if TLS was cut.
func (tn *tunnel) outward() bool {
	raw, err := tn.inside.SyscallConn()
	if err != nil {
		return tn.fail(err)
	}
	for {
		buf, n, err := tn.readPair(raw)
		if n > 0 {
			tn.linger()
			_, err = tn.tls.Write(buf.Bytes[:n])
		}
		tn.busy.Store(false)
		if buf != nil {
			buf.Put()
		}
		switch {
		case err == io.EOF && tn.isAborted():
			return false
		case err == io.EOF:
			tn.linger()
			if err := tn.tls.CloseWrite(); err != nil {
				return tn.unwritten(err)
			}
			tn.mu.Lock()
			tn.told = true
			tn.mu.Unlock()
			tn.linger()
			return true
		case err != nil:
			return tn.unwritten(err)
		}
	}
}

// unwritten notes why outward cannot write, and returns false. A peer that closes with bytes
// unread resets the connection. What it has sent before, such as an answer or an alert, is
// still to be read. So TLS fails only when inward has ended, too.
func (tn *tunnel) unwritten(err error) bool {
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		return tn.fail(err)
	}
	tn.writeErr.Store(&err)
	tn.broke()
	return false
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

// readPair waits until the session has written bytes, and reads them. It takes the buffer only
// then. It returns io.EOF at the end of the pair.
func (tn *tunnel) readPair(raw syscall.RawConn) (buf *buffer.Buffer, n int, err error) {
	waited := raw.Read(func(fd uintptr) bool {
		tn.busy.Store(true)
		buf = buffer.Get(recordSize)
		from := sock.Descriptor(fd)
		for n, err = from.Read(buf.Bytes); err == unix.EINTR; n, err = from.Read(buf.Bytes) {
		}
		if err != nil {
			buf.Put()
			buf = nil
			tn.busy.Store(false)
		}
		return err != unix.EAGAIN
	})
	switch {
	case waited != nil:
		return nil, 0, waited
	case err == nil && n == 0:
		err = io.EOF
	case err != nil:
		n = 0
	}
	return buf, n, err
}

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

// linger gives the next piece of what an ended session has left behind lingerTime to leave. Behind the
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
	s := tn.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.tunnels, tn); len(s.tunnels) == 0 {
		s.idle.Broadcast()
	}
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

// watch lets the poller tell the session when the connection beneath breaks. The goroutines may
// not notice, for example while what the peer has sent waits for its class.
func (tn *tunnel) watch() (err error) {
	tn.control(func(d sock.Descriptor) { tn.key, err = tn.session.poller.Watch(d, sock.OnlyBroken, tn) })
	return err
}

// unwatch undoes watch.
func (tn *tunnel) unwatch() {
	if tn.key != 0 {
		tn.session.poller.Forget(tn.key)
	}
}

// Ready implements sock.Watcher.
func (tn *tunnel) Ready(_ uint64, events sock.Events) {
	if events&sock.Broken != 0 {
		tn.broke()
	}
}

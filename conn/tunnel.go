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

// tunnel is the TLS of one side of a session. crypto/tls wants a connection that
// blocks, and sessions never wait: so the session has one end of a socket pair as
// its socket, and two goroutines copy between the other end and the peer.
//
//	session  <- pair ->  tunnel  <- TLS over TCP ->  peer
//
// Both ways hold a bounded number of bytes, so whoever is slow is felt by the other.
// An end (close_notify) goes on as an end of the pair, and an end of the pair as a
// close_notify. Everything else with which TLS may end is a failure: the session
// reads what came before it, and then that the peer has reset the connection.
type tunnel struct {
	server  *Server
	session *tcpSession
	side    *side   // of the session, which it is beneath
	end     *tlsEnd // of that

	file    *os.File // the connection, until there are descriptors for the rest
	wire    *wire
	tls     *tls.Conn
	outside *sock.Socket  // the session's end of the pair; closed: there is none, or the session has it
	inside  *net.UnixConn // the other end
	version uint16        // of TLS
	key     uint64        // of the poller; 0: it is not watched

	gone    chan struct{} // closed when the session has given the tunnel up
	failure atomic.Pointer[tunnelFailure]
	down    atomic.Pointer[error] // why outward cannot write, while inward still reads
	cut     atomic.Bool           // a way has not ended well
	ended   atomic.Int32          // how many ways have
	busy    atomic.Bool           // bytes have been taken from the pair, and are not written

	mu       sync.Mutex
	aborted  bool // gone is closed
	leaving  bool // the session has ended well, and what it has written is still to leave
	attached bool // the session has its end
}

// tunnelFailure is why TLS has ended without an end, and what that makes of the session.
type tunnelFailure struct {
	err    error
	result stats.Result
}

func (f *tunnelFailure) Error() string { return "TLS: " + f.err.Error() }
func (f *tunnelFailure) Unwrap() error { return f.err }

// Bounds of what waits in a tunnel.
const (
	pairBuffer = 32 << 10    // SO_SNDBUF of each end of the pair
	smallTaste = 1 << 10     // what is read of a connection that was quiet
	recordSize = 16 << 10    // the most that a record of TLS holds (RFC 8446, 5.1)
	lingerTime = time.Minute // for each piece of what a session has left behind
)

var errGone = errors.New("the session has ended")

// run does the handshake, tells done how that came out, and has bytes passed on then.
// Done takes the session's end, or returns false if the session has no use for it.
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
	// A handshake needs a large stack, which its goroutine would keep.
	passing = true
	tn.server.wg.Go(func() { tn.pass(tn.inward) })
	tn.server.wg.Go(func() { tn.pass(tn.outward) })
}

// pass goes one of the ways; the last one to end closes the tunnel.
func (tn *tunnel) pass(way func() bool) {
	defer tn.server.rescue(tn.session)
	ok := false
	defer func() {
		if !ok {
			tn.cut.Store(true)
		}
		if tn.ended.Add(1) == 2 {
			if err := tn.down.Load(); err != nil {
				tn.fail(*err)
			}
			tn.close(!tn.cut.Load())
		}
	}()
	ok = way()
}

// connect does the handshake.
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

// open makes what a tunnel needs of descriptors, or nothing.
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
	tn.outside, tn.inside, tn.wire = outside, inside, &wire{TCPConn: c.(*net.TCPConn)}
	tn.wire.SetKeepAlive(false) // idle_timeout ends what is dead
	tn.wire.SetDeadline(by)
	if tn.aborted {
		tn.interrupt()
	}
	return nil
}

// attach ends the deadline of the handshake.
func (tn *tunnel) attach() error {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.aborted {
		return errGone
	}
	tn.attached = true
	return tn.wire.TCPConn.SetDeadline(time.Time{})
}

// inward passes on what the peer sends, until it has ended; false if it has failed.
// While the peer is quiet it holds a small buffer only.
func (tn *tunnel) inward() bool {
	taste := make([]byte, smallTaste)
	for plenty := false; ; {
		to := taste
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
		case err == io.EOF && !tn.wire.ended:
			tn.inside.CloseWrite()
			return true
		case err == io.EOF && tn.down.Load() != nil:
			return false // a reset is told once only, and outward knows
		case err == io.EOF:
			return tn.fail(io.ErrUnexpectedEOF)
		case err != nil:
			return tn.fail(err)
		}
	}
}

// outward passes on what the session has written, until it has ended; false if it
// has failed.
func (tn *tunnel) outward() bool {
	raw, err := tn.inside.SyscallConn()
	if err != nil {
		return tn.fail(err)
	}
	for {
		buf, n, err := tn.take(raw)
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
			return true
		case err != nil:
			return tn.unwritten(err)
		}
	}
}

// unwritten notes why nothing more can be written, and returns false. A peer that closes with
// bytes unread resets the connection: what it has sent before, as an answer or an alert, is
// still to be read, and the last of the ways to end tells the failure.
func (tn *tunnel) unwritten(err error) bool {
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		return tn.fail(err)
	}
	tn.down.Store(&err)
	return false
}

// take waits until there are bytes, and reads them into a buffer: none is held while
// there are none.
func (tn *tunnel) take(raw syscall.RawConn) (buf *buffer.Buffer, n int, err error) {
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

// fail notes the first reason for which TLS cannot go on, and ends it. It returns
// false.
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

// isTLS reports whether an error is one of TLS rather than of what is beneath it.
func isTLS(err error) bool {
	var op *net.OpError
	var header tls.RecordHeaderError
	return errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error") || errors.As(err, &header)
}

// abort ends the tunnel with a reset; false if that has been done. It does not wait.
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

// interrupt ends what the goroutines wait for; mu is held.
func (tn *tunnel) interrupt() {
	tn.wire.TCPConn.SetDeadline(time.Unix(1, 0))
	tn.inside.SetDeadline(time.Unix(1, 0))
}

func (tn *tunnel) isAborted() bool {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return tn.aborted
}

// leave lets what the session has written still leave, as the kernel does with a
// socket that is closed.
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

// linger gives what a session has left behind some more time to leave.
func (tn *tunnel) linger() {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.leaving && !tn.aborted {
		tn.wire.TCPConn.SetWriteDeadline(time.Now().Add(lingerTime))
	}
}

// close closes what the tunnel has: with a reset, unless all went well.
func (tn *tunnel) close(ok bool) {
	tn.unwatch()
	tn.mu.Lock()
	if tn.wire == nil {
		sock.Descriptor(tn.file.Fd()).Abandon()
		tn.file.Close()
	} else {
		if !ok || tn.aborted {
			tn.wire.SetLinger(0)
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

// failed notes that the peer beneath the tunnel is gone. The session ends when it has read
// what came before. One that has sent a FIN and no close_notify is not broken: nothing is
// known to be lost.
func (tn *tunnel) failed(f *tunnelFailure) {
	tn.session.do(func(t *tcpSession) {
		s := tn.side
		if s.end != tn.end {
			return
		}
		if f.result == stats.TLSFailed {
			t.warn(tlsFailed, "with", s.name(), "err", f.err)
		}
		s.Broken = f.err != io.ErrUnexpectedEOF
		t.driver.changed(s)
	})
}

// watch lets the poller tell the session when the connection beneath breaks, though neither
// way waits for it: as while what the peer has sent waits for its class.
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
	tn.session.do(func(t *tcpSession) {
		if s := tn.side; s.end == tn.end {
			s.Broken = true
			t.driver.changed(s)
		}
	})
}

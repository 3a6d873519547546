package conn

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

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

	// mu guards all that follows. mu comes after the lock of the session, and before the lock of a
	// poller. Only newTunnel and the goroutine of run set file, wire and inside. So that
	// goroutine, and the goroutines that it starts, read these fields without mu.
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

// pairBuffer is SO_SNDBUF of each end of the pair.
const pairBuffer = 32 << 10

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

// isOpen reports whether open has succeeded.
func (tn *tunnel) isOpen() bool {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return tn.wire != nil
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

// watch lets the poller tell the session when the connection beneath breaks. The goroutines may
// not notice, for example while what the peer has sent waits for its class.
func (tn *tunnel) watch() (err error) {
	tn.control(func(d sock.Descriptor) { tn.key, err = tn.session.poller.Watch(d, sock.OnlyBroken, tn) })
	return err
}

// Ready implements sock.Watcher.
func (tn *tunnel) Ready(_ uint64, events sock.Events) {
	if events&sock.Broken != 0 {
		tn.broke()
	}
}

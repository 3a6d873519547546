package conn

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/entry"
	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
)

// udpSocket is a bound UDP socket, and the sessions of its clients. It implements bound.
type udpSocket struct {
	// Set by newUDPSocket, and read by all.
	server *Server
	conn   *net.UDPConn
	raw    syscall.RawConn

	// addressing says where datagrams go. It is set before serve. nil: they go to the upstreams of
	// the listener, or, if it is transparent, to where their senders sent them.
	addressing addressing

	service atomic.Pointer[service] // nil until serve
	reading sync.WaitGroup          // the goroutine that reads

	keys [sock.BatchSize]udpKey // of a batch; owned by the goroutine that reads

	// mu guards the fields below. No other lock is taken while it is held.
	mu       sync.Mutex
	sessions map[udpKey]*udpSession
	state    udpState
}

// udpState says how far a socket is from its end.
type udpState uint8

const (
	udpOpen    udpState = iota
	udpClosing          // it reads no more, and closes with its last session
	udpClosed
)

// udpKey tells the sessions of a socket apart: by the client, and by what the client has asked
// for. A client that can say so asks for a destination. Any other client asks for the address of
// ours to which it has sent.
type udpKey struct {
	client netip.AddrPort
	asked  entry.Destination
}

// conf returns the listener of the datagrams, as it is now.
func (u *udpSocket) conf() *policy.Listener { return u.service.Load().terms.Load().datagrams() }

// bindUDP binds an address, or takes the socket that was passed for it.
func (s *Server) bindUDP(at address) (bound, error) {
	c, err := s.inherited.listenUDP(at.text)
	if err != nil {
		return nil, err
	}
	u, err := s.newUDPSocket(c)
	if err != nil {
		return nil, err
	}
	tuneUDP(u.raw, addrPortOf(c.LocalAddr()).Addr().IsUnspecified())
	return u, nil
}

// newUDPSocket returns a socket without a service. If it fails, it closes c.
func (s *Server) newUDPSocket(c *net.UDPConn) (*udpSocket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	return &udpSocket{server: s, conn: c, raw: raw, sessions: map[udpKey]*udpSession{}}, nil
}

// udpReceiveBuffer holds bursts until the reader runs. It does not delay shaping: a datagram
// without room in its class is dropped when it is read.
const udpReceiveBuffer = 4 << 20

// tuneUDP sizes the receive buffer, and makes the kernel coalesce datagrams (UDP_GRO). A
// wildcard socket also reports the address that each datagram was sent to. If the kernel
// refuses an option, the socket works without it.
func tuneUDP(raw syscall.RawConn, wildcard bool) {
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1)
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, udpReceiveBuffer) != nil {
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, udpReceiveBuffer)
		}
		if wildcard {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		}
	})
}

// serve implements bound. It may be called again after close and revive.
func (u *udpSocket) serve(sv *service) {
	u.retarget(sv)
	u.conn.SetReadDeadline(time.Time{})
	u.reading.Add(1)
	u.server.wg.Go(u.read)
}

// retarget implements bound.
func (u *udpSocket) retarget(sv *service) {
	u.service.Store(sv)
	for _, name := range sv.terms.Load().Upstream {
		u.server.names.Known(name) // before the first session needs the address
	}
}

// intercept implements bound.
func (u *udpSocket) intercept() (undo func(), err error) {
	var before sock.Interception
	failed := u.raw.Control(func(fd uintptr) {
		before = sock.Descriptor(fd).Interception()
		err = sock.Descriptor(fd).InterceptDatagrams(policy.OwnMark)
	})
	return func() {
		u.raw.Control(func(fd uintptr) { sock.Descriptor(fd).Restore(before) })
	}, cmp.Or(failed, err)
}

// has reports whether the socket has a port at all addresses, so that no other can be bound to it.
func (u *udpSocket) has(port uint16) bool {
	own := u.local().addr
	return own.Addr().IsUnspecified() && own.Port() == port
}

// share lets others that ask for it have the port of the socket, too (SO_REUSEADDR in socket(7)).
func (u *udpSocket) share() (undo func()) {
	before := 1
	set := func(value int) {
		u.raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, value) })
	}
	u.raw.Control(func(fd uintptr) { before, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR) })
	set(1)
	return func() { set(before) }
}

// leadsTo implements bound.
func (u *udpSocket) leadsTo() *service { return u.service.Load() }

// local implements bound.
func (u *udpSocket) local() localAddr { return localAddrOf("udp", u.conn.LocalAddr()) }

// isGone implements bound.
func (u *udpSocket) isGone() bool { return false }

// close implements bound: it stops reading. The socket stays open for the answers to open sessions,
// and closes with the last of them.
func (u *udpSocket) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.state = udpClosing
	u.conn.SetReadDeadline(time.Unix(1, 0))
	u.closeUnused()
}

// end closes the socket, and ends its sessions.
func (u *udpSocket) end(result stats.Result) {
	u.close()
	u.mu.Lock()
	all := slices.Collect(maps.Values(u.sessions))
	u.mu.Unlock()
	for _, one := range all {
		one.abort(result)
	}
}

// count returns how many sessions there are.
func (u *udpSocket) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.sessions)
}

// closeUnused closes the socket if it is closing and has no session. mu is held.
func (u *udpSocket) closeUnused() {
	if u.state == udpClosing && len(u.sessions) == 0 {
		u.state = udpClosed
		u.conn.Close()
	}
}

// revive takes back a socket that is closing. serve or close must follow. If the socket is closed
// already, its address is free, and revive returns false.
func (u *udpSocket) revive() bool {
	u.mu.Lock()
	closing := u.state == udpClosing
	if closing {
		u.state = udpOpen
	}
	u.mu.Unlock()
	u.reading.Wait()
	if closing {
		u.raw.Control(u.dropOld)
	}
	return closing
}

func (u *udpSocket) is(state udpState) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state == state
}

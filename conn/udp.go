package conn

import (
	"errors"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
	"shaper/upstream"
)

// udpSocket is a bound UDP socket, and the sessions of its clients. It implements bound.
type udpSocket struct {
	// Set by bindUDP, and read by all.
	server *Server
	conn   *net.UDPConn
	raw    syscall.RawConn

	service atomic.Pointer[service]
	reading sync.WaitGroup // the goroutine that reads

	// mu guards the fields below. It comes after the lock of the server, and before none.
	mu       sync.Mutex
	sessions map[udpKey]*udpSession
	state    udpState
}

// udpState is where a socket is in its life.
type udpState uint8

const (
	udpOpen    udpState = iota
	udpClosing          // it reads no more, and closes with its last session
	udpClosed
)

// udpKey tells the sessions of a socket apart: by the client, and by our address that it has
// sent to.
type udpKey struct {
	client netip.AddrPort
	asked  netip.Addr
}

// keyOf returns the key of datagram i of a batch.
func keyOf(in *sock.Incoming, i int) udpKey { return udpKey{in.Source(i), in.Asked(i)} }

// bindUDP binds an address, or takes the socket that was passed for it.
func (s *Server) bindUDP(at address) (bound, error) {
	c, err := s.inherited.listenUDP(at.text)
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	u := &udpSocket{server: s, conn: c, raw: raw, sessions: map[udpKey]*udpSession{}}
	tuneUDP(raw, addrPortOf(c.LocalAddr()).Addr().IsUnspecified())
	return u, nil
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

func (u *udpSocket) serve(sv *service) {
	u.retarget(sv)
	u.conn.SetReadDeadline(time.Time{})
	u.reading.Add(1)
	u.server.wg.Go(u.read)
}

func (u *udpSocket) retarget(sv *service) {
	u.service.Store(sv)
	for _, name := range sv.terms.Load().Upstream {
		u.server.names.Known(name) // before the first session needs the address
	}
}

// intercept is for TCP only.
func (u *udpSocket) intercept() error { return errWrongSocket }

func (u *udpSocket) leadsTo() *service { return u.service.Load() }

func (u *udpSocket) local() localAddr { return localAddrOf("udp", u.conn.LocalAddr()) }

func (u *udpSocket) isGone() bool { return false }

// close stops reading. The socket stays open for the answers to open sessions.
func (u *udpSocket) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.state = udpClosing
	u.conn.SetReadDeadline(time.Unix(1, 0))
	u.closeUnused()
}

// closeUnused closes the socket if it is closing and has no session. mu is held.
func (u *udpSocket) closeUnused() {
	if u.state == udpClosing && len(u.sessions) == 0 {
		u.state = udpClosed
		u.conn.Close()
	}
}

// revive takes back a socket that is closing. serve or close must follow. It returns false if
// the socket is closed and its address is free.
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

// dropOld drops the datagrams that came while nobody was reading. They may be old.
func (u *udpSocket) dropOld(fd uintptr) {
	sock.Discard(fd, func(in *sock.Incoming, n int) {
		for i := range n {
			u.lost(keyOf(in, i), in.Train(i))
		}
	})
}

func (u *udpSocket) is(state udpState) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state == state
}

// read passes each datagram to its session, batch by batch, until close.
func (u *udpSocket) read() {
	defer u.reading.Done()
	in := &sock.Reader{}
	for {
		n, err := in.Read(u.raw)
		if err != nil {
			return
		}
		u.deliver(in.Batch, n)
		in.Release()
	}
}

// deliver passes the n datagrams of a batch to their sessions. It keeps runs of one session
// together, so that they may leave together.
func (u *udpSocket) deliver(in *sock.Incoming, n int) {
	for i := 0; i < n; {
		key := keyOf(in, i)
		from := i
		for i++; i < n && keyOf(in, i) == key; i++ {
		}
		u.pass(key, in, from, i)
	}
}

// pass passes datagrams [from, to) of a batch to their session, which has this key.
// A panic before there is a session loses these datagrams only.
func (u *udpSocket) pass(key udpKey, in *sock.Incoming, from, to int) {
	defer func() {
		if p := recover(); p != nil {
			u.server.log.Error("datagram panicked", "client", key.client, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	for ; from < to; from++ {
		if one := u.session(key, in, from); one != nil {
			one.offer(&one.up, in, from, to)
			return
		}
	}
}

// session returns the session of datagram i, and opens one if there is none. If that fails, it
// drops the datagram and returns nil.
func (u *udpSocket) session(key udpKey, in *sock.Incoming, i int) *udpSession {
	u.mu.Lock()
	one := u.sessions[key]
	u.mu.Unlock()
	if one != nil {
		return one
	}
	sv := u.service.Load()
	if u.server.isOwn("udp", key.client) || !sv.gate.tryEnter() { // a client that is a listener of ours would make a loop
		u.lost(key, in.Train(i))
		return nil
	}
	defer func() {
		if one == nil { // open has failed or panicked
			sv.gate.leave()
		}
	}()
	one, err := u.open(key, in.Peer(i), sv)
	if err != nil {
		sv.stats.Ended[notOpened(err)].Add(1)
		if errors.As(err, new(*upstream.PortError)) {
			u.server.warn(sv, sv.terms.Load().Name, noPort, []any{"client", key.client, "err", err})
		}
		u.lost(key, in.Train(i))
		return nil
	}
	return one
}

// lost counts datagrams without a session as drops of the class that they would have had.
func (u *udpSocket) lost(key udpKey, t sock.Train) {
	s := u.server
	s.routing.mu.RLock()
	defer s.routing.mu.RUnlock()
	sv := u.service.Load()
	conf := &sv.terms.Load().Listener
	if up, _ := s.routing.routes.classify(u.describe(key, conf, sv.terms.Load().leads.First()), conf); up != nil {
		cost := costOf(t)
		up.Tally().Dropped(stats.NoSession, cost.Packets, cost.Bytes)
	}
}

// describe returns what rules match.
func (u *udpSocket) describe(key udpKey, conf *policy.Listener, destination netip.AddrPort) policy.Conn {
	return policy.Conn{
		Listener: conf.Name, Source: key.client,
		Port: addrPortOf(u.conn.LocalAddr()).Port(), Destination: destination,
	}
}

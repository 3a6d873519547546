package conn

import (
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
)

// udpSocket is a bound UDP socket and the sessions of its clients.
type udpSocket struct {
	server  *Server
	conn    *net.UDPConn
	raw     syscall.RawConn
	service atomic.Pointer[service]

	reading sync.WaitGroup // the read loop

	mu       sync.Mutex
	sessions map[udpKey]*udpSession
	state    udpState
}

// udpState is where a socket is in its life.
type udpState uint8

const (
	udpOpen    udpState = iota
	udpClosing          // it reads no more, and goes with its last session
	udpClosed
)

// udpKey tells sessions of one socket apart: who asks, and which of our
// addresses.
type udpKey struct {
	client netip.AddrPort
	asked  netip.Addr
}

func keyOf(in *sock.Incoming, i int) udpKey { return udpKey{in.Source(i), in.Asked(i)} }

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

// udpReceiveBuffer takes up bursts until the read loop gets to run. Shaping is
// felt at once all the same: what has no room in its class is dropped when it
// is read.
const udpReceiveBuffer = 4 << 20

// tuneUDP sizes the receive buffer, has datagrams that were sent as one read as
// one, and a socket that is bound to every address tell which one was asked. What
// the kernel does not grant is done without.
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
	sv.names.lookup(u.server, sv.terms.Load().Upstream[0]) // before the first session needs it
}

func (u *udpSocket) leadsTo() *service { return u.service.Load() }

func (u *udpSocket) local() localAddr { return localAddr{"udp", addrPortOf(u.conn.LocalAddr())} }

// close stops reading. The socket stays for the answers to open sessions.
func (u *udpSocket) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.state = udpClosing
	u.conn.SetReadDeadline(time.Unix(1, 0))
	u.closeUnused()
}

// closeUnused closes the socket once it is closing and has no session.
func (u *udpSocket) closeUnused() {
	if u.state == udpClosing && len(u.sessions) == 0 {
		u.state = udpClosed
		u.conn.Close()
	}
}

// revive takes back a socket that lingers after close; serve or close is to
// follow. It returns false where the socket has been closed, and its address is
// free.
func (u *udpSocket) revive() bool {
	u.mu.Lock()
	lingers := u.state == udpClosing
	if lingers {
		u.state = udpOpen
	}
	u.mu.Unlock()
	u.reading.Wait()
	if lingers {
		u.raw.Control(u.dropOld)
	}
	return lingers
}

// dropOld drops what came while nobody read: it may be of any age.
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

// read hands each datagram to its session, batch by batch, until the socket is
// closed or has a read deadline.
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

// deliver offers each datagram of a batch to its session's class. Runs of
// datagrams of one session that leave at once leave together.
func (u *udpSocket) deliver(in *sock.Incoming, n int) {
	for i := 0; i < n; {
		key := keyOf(in, i)
		from := i
		for i++; i < n && keyOf(in, i) == key; i++ {
		}
		u.pass(key, in, from, i)
	}
}

// pass hands the datagrams of a batch from one number up to another, all of one
// session, to that. A panic where there is no session yet costs only them.
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

// session returns the session of datagram i, a new one if need be; nil where
// it cannot have one, and the datagram is dropped.
func (u *udpSocket) session(key udpKey, in *sock.Incoming, i int) *udpSession {
	u.mu.Lock()
	one := u.sessions[key]
	u.mu.Unlock()
	if one != nil {
		return one
	}
	sv := u.service.Load()
	if u.server.isOwn("udp", key.client) || !sv.gate.tryEnter() { // never answer ourselves
		u.lost(key, in.Train(i))
		return nil
	}
	defer func() {
		if one == nil { // or it has panicked
			sv.gate.leave()
		}
	}()
	one, err := u.open(key, in.Peer(i), sv)
	if err != nil {
		sv.stats.Ended[notOpened(err)].Add(1)
		u.lost(key, in.Train(i))
		return nil
	}
	return one
}

// lost counts datagrams without a session as dropped by the class they would
// have had.
func (u *udpSocket) lost(key udpKey, t sock.Train) {
	s := u.server
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	sv := u.service.Load()
	conf := &sv.terms.Load().Listener
	if up, _ := s.routes.classify(u.describe(key, conf, sv.names.known(conf.Upstream[0])), conf); up != nil {
		cost := costOf(t)
		up.CountDropped(stats.NoSession, cost.Packets, cost.Bytes)
	}
}

// describe returns what the rules match.
func (u *udpSocket) describe(key udpKey, conf *policy.Listener, destination netip.AddrPort) policy.Conn {
	return policy.Conn{
		Listener: conf.Name, Source: key.client,
		Port: addrPortOf(u.conn.LocalAddr()).Port(), Destination: destination,
	}
}

package conn

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime/debug"
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
	"shaper/upstream"
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

// udpKey tells the sessions of a socket apart: by the client, and by what it has asked for. That
// is where it wants to go, if it can say that, and otherwise our address that it has sent to.
type udpKey struct {
	client netip.AddrPort
	asked  entry.Destination
}

// An addressing says where each datagram of a socket is to go.
type addressing interface {
	// keyOf returns the key of datagram i of a batch, and takes its header off. The zero key
	// drops the datagram.
	keyOf(in *sock.Incoming, i int) udpKey
	// admit reports whether a session with that key may begin now, for a datagram of the client. If
	// not, it keeps the datagram or drops it. The caller has asked mayLead.
	admit(key udpKey, client sock.Peer, t sock.Train) bool
	// mayBegin reports whether the listener, as it is now, still lets the client begin a session.
	mayBegin(present *terms) bool
	// describe adds what rules match.
	describe(who *policy.Conn, key udpKey)
}

// keyOf returns the key of datagram i of a batch; the zero key if it is dropped.
func (u *udpSocket) keyOf(in *sock.Incoming, i int) udpKey {
	switch {
	case u.addressing != nil:
		return u.addressing.keyOf(in, i)
	case u.conf().Mode == policy.Transparent:
		return udpKey{in.Source(i), destinationAt(in.Intended(i))}
	}
	return udpKey{in.Source(i), entry.Destination{Addr: in.Asked(i)}}
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

// dropOld drops the datagrams that came while nobody was reading. They may be old.
func (u *udpSocket) dropOld(fd uintptr) {
	sock.Discard(fd, func(in *sock.Incoming, n int) {
		for i := range n {
			if key := u.keyOf(in, i); key != (udpKey{}) {
				u.lost(key, in.Train(i))
			}
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
	for i := range n {
		u.keys[i] = u.keyOf(in, i)
	}
	for i := 0; i < n; {
		key := u.keys[i]
		from := i
		for i++; i < n && u.keys[i] == key; i++ {
		}
		if key != (udpKey{}) {
			u.pass(key, in, from, i)
		}
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

// session returns the session of datagram i, and begins one if there is none. If that fails, it
// drops the datagram and returns nil.
func (u *udpSocket) session(key udpKey, in *sock.Incoming, i int) *udpSession {
	if one := u.present(key); one != nil {
		return one
	}
	client, conf := in.Peer(i), u.conf()
	switch {
	case conf.Mode != policy.Transparent:
	case u.has(key.asked.Port):
		client = in.PeerOf(i, key.asked.Addr)
	default:
		client = sock.PeerAt(key.client) // another socket answers
	}
	if conf.Mode.IsEntry() {
		if !mayLead(conf, key.asked) {
			u.denied(key)
			return nil
		}
		if u.addressing != nil && !u.addressing.admit(key, client, in.Train(i)) {
			return nil
		}
		if one := u.present(key); one != nil { // a lookup has begun it meanwhile
			return one
		}
	}
	one := u.begin(key, client)
	if one == nil {
		u.lost(key, in.Train(i))
	}
	return one
}

// present returns the session with a key; nil if there is none.
func (u *udpSocket) present(key udpKey) *udpSession {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sessions[key]
}

// denied counts a datagram whose destination the policy does not allow.
func (u *udpSocket) denied(key udpKey) {
	sv := u.service.Load()
	sv.stats.Stray.Add(stats.StrayDenied)
	u.server.warn(sv, sv.terms.Load().Name, denied, []any{"client", key.client, "err", fmt.Errorf("%v: %w", key.asked, errDenied)})
}

// begin begins a session. It returns nil if there are too many, or if open fails. It counts the
// failures of open.
func (u *udpSocket) begin(key udpKey, client sock.Peer) (one *udpSession) {
	sv := u.service.Load()
	if u.server.isOwn("udp", key.client) || !sv.gate.tryEnter() { // a client that is a listener of ours would make a loop
		return nil
	}
	defer func() {
		if one == nil { // open has failed or panicked
			sv.gate.leave()
		}
	}()
	one, err := u.open(key, client, sv)
	switch {
	case err == nil:
		return one
	case err == errDenied:
		u.denied(key)
		return nil
	case errors.As(err, new(*upstream.PortError)):
		u.server.warn(sv, sv.terms.Load().Name, noPort, []any{"client", key.client, "err", err})
	case isOfSource(err):
		u.server.warn(sv, sv.terms.Load().Name, unreachable, []any{"client", key.client, "err", err})
	case err != errNoSlot && u.conf().Mode.IsEntry():
		u.server.warn(sv, sv.terms.Load().Name, unreachable, []any{"client", key.client, "err", fmt.Errorf("dial %v: %w", key.asked, err)})
	}
	sv.stats.Ended[notOpened(err)].Add(1)
	return nil
}

// lost counts datagrams without a session as drops of the class that they would have had.
func (u *udpSocket) lost(key udpKey, t sock.Train) {
	s := u.server
	s.routing.mu.RLock()
	defer s.routing.mu.RUnlock()
	present := u.service.Load().terms.Load()
	conf, to := present.datagrams(), addressIn(key.asked)
	if !conf.Mode.IsEntry() {
		to = present.leads.First()
	}
	if up, _ := s.routing.routes.classify(u.describe(key, conf, to), conf); up != nil {
		cost := costOf(t)
		up.Tally().Dropped(stats.NoSession, cost.Packets, cost.Bytes)
	}
}

// describe returns what rules match of a session to a destination.
func (u *udpSocket) describe(key udpKey, conf *policy.Listener, destination netip.AddrPort) policy.Conn {
	who := policy.Conn{
		Listener: conf.Name, Source: key.client,
		Port: addrPortOf(u.conn.LocalAddr()).Port(), Destination: destination,
	}
	switch {
	case u.addressing != nil:
		u.addressing.describe(&who, key)
	case conf.Mode == policy.Transparent:
		who.Port = key.asked.Port
	}
	return who
}

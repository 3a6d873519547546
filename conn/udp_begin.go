package conn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/entry"
	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/upstream"
)

var (
	errNotKnown    = errors.New("the address of the upstream is not known yet")
	errDescriptors = errors.New("UDP sessions already hold half of the descriptors; raise LimitNOFILE (ulimit -n)")
	errNoPermit    = errors.New("all max_connections of the class are open")
)

// notOpened returns how a session ends that open has refused with err.
func notOpened(err error) stats.Result {
	if err == errNoPermit {
		return stats.Overflow
	}
	return stats.DialFailed
}

// open opens the session of a client. It does not wait for a lookup: if the address of the
// upstream is not known yet, that is an error.
func (u *udpSocket) open(key udpKey, client sock.Peer, sv *service) (*udpSession, error) {
	present := sv.terms.Load()
	one := &udpSession{id: u.server.lastID.Add(1), socket: u, service: sv, conf: present.datagrams(), key: key, client: client, started: time.Now()}
	if u.addressing != nil && !u.addressing.mayBegin(present) { // since a reload
		return nil, errDenied
	}
	if err := one.begin(present.leads); err != nil {
		return nil, err
	}
	sv.stats.Open.Add(1)
	if one.upstream != nil {
		u.server.wg.Go(one.answers)
	}
	return one, nil
}

// begin puts the session into its classes, dials, and registers it. If begin fails, it undoes
// everything. Datagrams do not wait for a permit: without a permit begin fails before it makes a
// socket.
func (t *udpSession) begin(leads *upstream.Set) (err error) {
	if err := t.find(leads); err != nil {
		return err
	}
	begun := false
	defer func() {
		if !begun { // it has failed or panicked
			t.quit()
		}
	}()
	u := t.socket
	t.down.Raw, t.down.To = u.raw, &t.client
	if u.addressing != nil {
		t.down.Prefix = entry.AppendDatagram(nil, t.destination)
	}
	t.up.Prefix = t.introduction()
	if t.name == policy.Echo {
		t.up.echo = &t.down
	}
	lost, err := t.beginFromOurs()
	begun = err == nil
	if len(lost) > 0 && !errors.As(err, new(*lostError)) { // otherwise whoever gets err logs it
		u.server.warn(t.service, t.conf.Name, failedOver, []any{"client", t.key.client, "upstream", t.name, "address", t.destination, "err", errors.Join(lost...)})
	}
	return err
}

// beginFromOurs begins the session from an address of ours. If this machine does not have that, it
// begins from the next one. lost says so of each that it has tried; if there is no other, err does.
func (t *udpSession) beginFromOurs() (lost []error, err error) {
	mu := &t.socket.server.routing.mu
	mu.RLock()
	defer mu.RUnlock()
	var ours origin
	for {
		if err = t.beginFrom(); !t.service.lost.note(t.started, err) {
			break
		}
		lost = append(lost, fmt.Errorf("dial %v: %w", t.destination, err))
		err = errors.Join(lost...)
		if len(lost) == 1 {
			ours.set(t.conf.Bind, t.from)
		}
		if !ours.next(t.conf.Bind, t.destination.Addr()) {
			break
		}
		t.quitClasses()
		t.from = ours.of(t.conf.Bind)
	}
	return lost, err
}

// beginFrom chooses an address of ours, unless one is chosen, and begins the session from there. The lock of the routes is held.
func (t *udpSession) beginFrom() error {
	u, who := t.socket, t.describe()
	up, down := u.server.routing.routes.classify(who, t.conf)
	who.Bind = t.service.choose(t.started, t.conf, who, up, down)
	t.from = who.Bind
	up, down = up.Join(t.started, who), down.Join(t.started, who)
	t.up.init(t, stats.Upstream, up)
	t.down.init(t, stats.Downstream, down)
	if guest := u.server.routing.shadow.guest(who, t.conf, t.started); guest != nil {
		guest.Open(t.started, policy.UDP)
		t.copyTo(guest, t.started)
	}
	return t.join(up)
}

// countedAs returns the upstream under which failures of the session are counted.
func (t *udpSession) countedAs() string {
	if t.conf.Mode.IsEntry() {
		return upstream.Chosen
	}
	return t.name
}

// find sets the upstream of the session, its address, and the target that counts the session.
func (t *udpSession) find(leads *upstream.Set) error {
	walk := leads.Walk()
	walk.Next(t.started)
	defer walk.Quit()
	t.name, t.number = walk.Upstream(), walk.Number()
	addrs, known := walk.Known()
	isEntry := t.conf.Mode.IsEntry()
	if isEntry {
		t.name = t.key.asked.String()
		addrs, known = seen(t.socket.server.names, t.key.asked)
	}
	if !known {
		return errNotKnown
	}
	if isEntry {
		if addrs = allowed(t.conf, t.key.asked, addrs); len(addrs) == 0 {
			return errDenied
		}
	}
	if addrs = reachable(walk.Arrange(t.started, addrs)); len(addrs) == 0 {
		return upstream.ErrFamily
	}
	t.destination = addrs[0].AddrPort
	if t.destination.IsValid() && t.socket.server.isOwn("udp", t.destination) {
		return upstream.ErrLoop
	}
	walk.Take(addrs[0])
	t.at = walk.Keep()
	return nil
}

// reachable leaves out the first addresses to which there is no route, but never the last address.
// A session would not notice that datagrams to them go nowhere.
func reachable(addrs []upstream.Address) []upstream.Address {
	for len(addrs) > 1 && addrs[0].IsValid() && !sock.HasSource(addrs[0].AddrPort) {
		addrs = addrs[1:]
	}
	return addrs
}

// introduction returns what goes before each datagram to the upstream: a PROXY header with the
// address of the client, if the listener says so.
func (t *udpSession) introduction() []byte {
	if t.conf.SendProxy == "" {
		return nil
	}
	to := addrPortOf(t.socket.conn.LocalAddr())
	switch asked := t.key.asked; {
	case t.conf.Mode == policy.Transparent:
		to = addressIn(asked)
	case asked.Addr.IsValid() && t.socket.addressing == nil:
		to = netip.AddrPortFrom(asked.Addr, to.Port())
	}
	return entry.Proxy{Source: t.key.client, Destination: to}.AppendBinary(nil, true)
}

// dial makes the socket to the upstream, unless that is built in.
func (t *udpSession) dial() error {
	if builtins[t.name] != nil {
		return nil
	}
	s := t.socket.server
	if !s.udpUpstreams.tryEnter() {
		return errDescriptors
	}
	c, err := t.connect(t.destination)
	if err != nil {
		s.udpUpstreams.leave()
		t.service.countFailure(t.countedAs(), err)
		return err
	}
	t.upstream = c
	if t.up.Raw, err = c.SyscallConn(); err == nil && t.conf.Mode == policy.Transparent && !t.socket.has(t.destination.Port()) {
		t.down.Raw, err = t.answerFrom(t.destination)
		t.hasForeign = err == nil
	}
	if err != nil {
		t.closeUpstream()
		return err
	}
	t.up.Raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) })
	return nil
}

// answerFrom returns the socket that is bound to the address of a server. If other listeners of ours
// have the port of that address, they share the port at the moment at which it is bound.
func (t *udpSession) answerFrom(at netip.AddrPort) (syscall.RawConn, error) {
	s := t.socket.server
	raw, err := s.foreign.acquire(s, at)
	if !errors.Is(err, unix.EADDRINUSE) {
		return raw, err
	}
	s.foreign.sharing.Lock()
	defer s.foreign.sharing.Unlock()
	defer s.sharePort(at.Port())()
	return s.foreign.acquire(s, at)
}

// sharePort lets a socket be bound to one address of a port though other listeners of ours have the port
// at all addresses. undo must follow: until then, another program could take their datagrams.
func (s *Server) sharePort(port uint16) (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sockets := slices.Collect(maps.Values(s.closing))
	for _, b := range s.bound {
		if u, ok := b.(*udpSocket); ok {
			sockets = append(sockets, u)
		}
	}
	var undos []func()
	for _, u := range sockets {
		if u.has(port) {
			undos = append(undos, u.share())
		}
	}
	return func() {
		for _, undo := range undos {
			undo()
		}
	}
}

// connect returns a socket that is connected to the upstream.
func (t *udpSession) connect(to netip.AddrPort) (*net.UDPConn, error) {
	from := ourSide(t.conf, t.key.client, t.from, t.socket.server.marks.mark(t.up.class.Load()))
	from.Unicast = t.conf.Mode.IsEntry()
	dialer := net.Dialer{Control: controlOf(from)}
	if from.Addr.IsValid() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from.Addr, 0))
	}
	c, err := dialer.DialContext(context.Background(), "udp", to.String()) // does not wait, since the address is numeric
	if err == nil {
		err = refuseSelf(c)
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE), errors.Is(err, unix.EAGAIN): // udp(7): no ephemeral port is free
		return nil, &upstream.PortError{From: from.Addr}
	case err != nil:
		return nil, sourceError(err, from.Addr)
	}
	return c.(*net.UDPConn), nil
}

// join acquires a permit in the class, dials, and registers the session.
func (t *udpSession) join(up *shaper.Class) error {
	switch {
	case up == nil:
		return net.ErrClosed
	case !t.permit.Acquire(up, impatient{}):
		return errNoPermit
	}
	if err := t.dial(); err != nil {
		return err
	}
	if !t.socket.enter(t) {
		t.closeUpstream()
		return net.ErrClosed
	}
	return nil
}

package conn

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
)

// udpSession is one client of a socket, and the connected socket that it has
// towards the upstream.
type udpSession struct {
	id      uint64
	socket  *udpSocket
	service *service
	conf    *policy.Listener // as it was when the session began
	key     udpKey
	client  sock.Peer
	started time.Time

	upstream    *net.UDPConn // nil for what is built in
	destination netip.AddrPort
	name        string
	up, down    way
	slot        shaper.Slot
	guest       atomic.Pointer[shaper.Guest] // in the shadow of a policy; nil: there is none

	ended      atomic.Bool
	quietSince time.Time // of the janitor
}

var (
	errNotKnown    = errors.New("the upstream's address is not known yet")
	errDescriptors = errors.New("sessions of datagrams hold half of the descriptors already")
	errNoSlot      = errors.New("as many sessions are open in the class as may be")
)

// notOpened tells how a session has ended that could not begin.
func notOpened(err error) stats.Result {
	if err == errNoSlot {
		return stats.Overflow
	}
	return stats.DialFailed
}

// open makes the session of a client. It does not wait: an upstream whose name
// is not resolved yet is an error.
func (u *udpSocket) open(key udpKey, client sock.Peer, sv *service) (*udpSession, error) {
	one := &udpSession{id: u.server.lastID.Add(1), socket: u, service: sv, conf: &sv.terms.Load().Listener, key: key, client: client, started: time.Now()}
	if err := one.begin(); err != nil {
		return nil, err
	}
	sv.stats.Open.Add(1)
	if one.upstream != nil {
		u.server.wg.Go(one.answers)
	}
	return one, nil
}

// find finds where the session leads to.
func (t *udpSession) find() error {
	if t.name = t.conf.Upstream[0]; t.isBuiltin() {
		return nil
	}
	s := t.socket.server
	to := t.service.names.lookup(s, t.name)
	if !to.IsValid() {
		return errNotKnown
	}
	if s.isOwn("udp", to) {
		return errLoop
	}
	t.destination = to
	return nil
}

func (t *udpSession) isBuiltin() bool { return t.name == policy.Echo || t.name == policy.Discard }

// dial makes the socket towards the upstream.
func (t *udpSession) dial() error {
	if t.isBuiltin() {
		return nil
	}
	s := t.socket.server
	if !s.udpUpstreams.tryEnter() {
		return errDescriptors
	}
	c, err := t.connect(t.destination)
	if err != nil {
		s.udpUpstreams.leave()
		return err
	}
	t.upstream = c
	if t.up.Raw, err = c.SyscallConn(); err != nil {
		t.closeUpstream()
		return err
	}
	t.up.Raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1)
		if mark := s.marks.mark(t.up.class.Load()); mark != 0 {
			sock.Descriptor(fd).Set(sock.Mark, int(mark))
		}
	})
	return nil
}

func (t *udpSession) connect(to netip.AddrPort) (*net.UDPConn, error) {
	dialer := net.Dialer{}
	if t.conf.Bind.IsValid() {
		dialer.LocalAddr = &net.UDPAddr{IP: t.conf.Bind.AsSlice(), Zone: t.conf.Bind.Zone()}
	}
	c, err := dialer.DialContext(context.Background(), "udp", to.String()) // does not wait: the address is a number
	if err == nil {
		err = refuseSelf(c)
	}
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// begin puts the session into its classes, dials, and registers it. Where new ones
// may not begin nothing is left of it, and where that is for want of a slot, which
// datagrams do not wait for, no socket has been made either.
func (t *udpSession) begin() (err error) {
	if err := t.find(); err != nil {
		return err
	}
	begun := false
	defer func() {
		if !begun { // or it has panicked
			t.slot.Release()
			t.quit()
		}
	}()
	u := t.socket
	t.down.Raw, t.down.To = u.raw, &t.client
	if t.name == policy.Echo {
		t.up.turn = &t.down
	}
	u.server.routesMu.RLock()
	defer u.server.routesMu.RUnlock()
	who := t.describe()
	up, down := u.server.routes.classify(who, t.conf)
	up, down = up.Join(t.started, who), down.Join(t.started, who)
	t.up.init(t, stats.Upstream, up)
	t.down.init(t, stats.Downstream, down)
	if guest := u.server.shadow.guest(who, t.started); guest != nil {
		guest.Open(t.started, policy.UDP)
		t.copyTo(guest, t.started)
	}
	err = t.join(up)
	begun = err == nil
	return err
}

// join has the session enter its class, and everything that needs a slot there.
func (t *udpSession) join(up *shaper.Class) error {
	switch {
	case up == nil:
		return net.ErrClosed
	case !t.slot.Acquire(up, t):
		return errNoSlot
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

// describe returns what the rules match, and whose bucket it is.
func (t *udpSession) describe() policy.Conn {
	who := t.socket.describe(t.key, t.conf, t.destination)
	who.Session = t.id
	return who
}

// quit leaves the classes of the session.
func (t *udpSession) quit() {
	now := time.Now()
	t.up.quit(now)
	t.down.quit(now)
	t.guest.Swap(nil).End(now, true)
}

// Acquired implements shaper.SlotOwner, for one that never waits.
func (t *udpSession) Acquired() {}

// enter registers a session, with its socket first: from the server's registry
// on others may abort it.
func (u *udpSocket) enter(one *udpSession) bool {
	u.mu.Lock()
	open := u.state == udpOpen
	if open {
		u.sessions[one.key] = one
	}
	u.mu.Unlock()
	if !open {
		return false
	}
	if !u.server.add(one, one.id) {
		u.leave(one)
		return false
	}
	return true
}

// leave undoes enter.
func (u *udpSocket) leave(one *udpSession) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sessions, one.key)
	u.closeUnused()
}

// offer has the datagrams of a batch from one number up to another enter the
// class of a way of the session, and sends those that leave at once.
func (t *udpSession) offer(w *way, in *sock.Incoming, from, to int) {
	defer t.socket.server.rescue(t)
	out := getOutgoing()
	for i := from; i < to; i++ {
		w.offer(in.Train(i), out)
	}
	w.send(out)
	out.release()
}

// answers hands what the upstream sends to the way back, until the session
// ends. An ICMP error, as when nobody listens there, does not end it.
func (t *udpSession) answers() {
	defer t.socket.server.rescue(t)
	in := &sock.Reader{}
	for {
		n, err := in.Read(t.up.Raw)
		if err != nil {
			return
		}
		t.offer(&t.down, in.Batch, 0, n)
		in.Release()
	}
}

func (t *udpSession) reclassify(r *routes, gone map[*shaper.Class]bool) {
	who := t.describe()
	up, down := r.classify(who, t.conf)
	if up == nil { // it stays where it is, rather than go on unlimited
		return
	}
	now := time.Now()
	if gone[t.up.class.Load().Named()] {
		up = up.Join(now, who)
		t.slot.Move(up)
		t.up.move(now, up)
		if len(t.socket.server.marks.of()) > 0 {
			t.remark()
		}
	}
	if gone[t.down.class.Load().Named()] {
		t.down.move(now, down.Join(now, who))
	}
}

// abort ends the session. What waits in its classes is dropped.
func (t *udpSession) abort(result stats.Result) bool {
	if t.ended.Swap(true) {
		return false
	}
	t.socket.leave(t)
	t.slot.Release()
	t.up.dropPending(lossOf(result))
	t.down.dropPending(lossOf(result))
	t.quit()
	t.closeUpstream()
	t.service.stats.Ended[result].Add(1)
	t.service.stats.Open.Add(-1)
	t.service.gate.leave()
	t.socket.server.remove(t.id)
	return true
}

func (t *udpSession) closeUpstream() {
	if t.upstream != nil {
		t.upstream.Close() // ends answers
		t.socket.server.udpUpstreams.leave()
	}
}

// tend ends a session that has been quiet for its idle timeout; or, once its
// socket reads no more, for one look of the janitor.
func (t *udpSession) tend(now time.Time) {
	waiting := t.up.pending.Load() > 0 || t.down.pending.Load() > 0
	active := t.up.active.Swap(false)
	active = t.down.active.Swap(false) || active
	if waiting || active || t.quietSince.IsZero() {
		t.quietSince = now
		return
	}
	if t.socket.is(udpClosing) || now.Sub(t.quietSince) >= time.Duration(t.conf.IdleTimeout) {
		t.abort(stats.OK) // there is no other end to a session of datagrams
	}
}

func (t *udpSession) patient() bool {
	return time.Duration(t.conf.IdleTimeout) >= patientFrom && !t.socket.is(udpClosing)
}

func (t *udpSession) info() Session {
	return Session{
		ID: t.id, Listener: t.conf.Name, Protocol: string(policy.UDP), Started: t.started,
		Client: t.key.client.String(), Upstream: t.name, UpstreamNumber: 1, Destination: destinationName(t.destination),
		Class: nameOf(t.up.class.Load()), ReturnClass: nameOf(t.down.class.Load()),
		Upward: t.up.moved.Load(), Downward: t.down.moved.Load(),
		Waiting: t.up.held.Load() + t.down.held.Load(),
	}
}

func (t *udpSession) remark() {
	if t.up.Raw != nil {
		t.up.Raw.Control(func(fd uintptr) {
			sock.Descriptor(fd).Set(sock.Mark, int(t.socket.server.marks.mark(t.up.class.Load())))
		})
	}
}

// mirror is that of a tcpSession.
func (t *udpSession) mirror(s *shadow) {
	now := time.Now()
	guest := s.guest(t.describe(), now)
	if guest != nil {
		guest.Stay(now)
	}
	t.copyTo(guest, now)
}

// copyTo has the guest of a trial get copies of all datagrams from now on; nil for
// none. It ends as soon as the session has.
func (t *udpSession) copyTo(guest *shaper.Guest, now time.Time) {
	if guest == nil {
		t.up.mirror(nil)
		t.down.mirror(nil)
	} else {
		t.up.mirror(&guest.Up)
		t.down.mirror(&guest.Down)
	}
	t.guest.Swap(guest).End(now, true)
	if t.ended.Load() {
		t.guest.Swap(nil).End(now, true)
	}
}

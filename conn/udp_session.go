package conn

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/upstream"
)

// udpSession carries the datagrams between one client of a UDP socket and its upstream. If the
// client says where it wants to go, each of its destinations has a session. A session has a
// connected socket of its own to the upstream.
type udpSession struct {
	// Set by open before it registers the session, and read by all.
	id          uint64
	socket      *udpSocket
	service     *service
	conf        *policy.Listener // as it was when the session began
	key         udpKey
	client      sock.Peer
	started     time.Time
	upstream    *net.UDPConn // nil for a built-in upstream
	destination netip.AddrPort
	from        netip.Addr       // the address of bind; invalid: any of ours
	at          *upstream.Target // counts the session there
	name        string           // of the upstream, or what the client has chosen
	number      int              // of the upstream in the listener's list, from 1
	hasForeign  bool             // answers leave from a socket of foreign, with the address of destination

	// Safe for concurrent use.
	up, down udpDirection
	permit   shaper.Permit
	guest    atomic.Pointer[shaper.Guest] // in the shadow of a policy; nil: there is none
	ended    atomic.Bool

	quietSince time.Time // nothing has moved since then; owned by the janitor
}

// describe returns what rules match, and what buckets are keyed by.
func (t *udpSession) describe() policy.Conn {
	who := t.socket.describe(t.key, t.conf, t.destination)
	who.Session, who.Bind = t.id, t.from
	return who
}

// quit gives back all that the session has but its socket.
func (t *udpSession) quit() {
	t.quitClasses()
	t.at.Quit()
}

// quitClasses gives up the permit of the session, and quits its classes.
func (t *udpSession) quitClasses() {
	t.permit.Release()
	now := time.Now()
	t.up.quit(now)
	t.down.quit(now)
	t.guest.Swap(nil).End(now, true)
}

// impatient owns the permit of a UDP session: it never waits for one, so there is nothing to tell it.
type impatient struct{}

// Acquired implements shaper.PermitOwner.
func (impatient) Acquired() {}

// Protocol implements shaper.PermitOwner.
func (impatient) Protocol() policy.Protocol { return policy.UDP }

// enter registers a session with its socket and with the server. The socket comes first: once
// the server has the session, others may abort it. It returns false if either is closing. The socket
// may abort it at any time: then enter returns true, since abort has undone everything.
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
	switch {
	case u.server.sessions.add(one, one.id):
		if one.ended.Load() { // abort may have come before add
			u.server.sessions.remove(one.id)
		}
	case !one.ended.Swap(true):
		u.leave(one)
		return false
	}
	return true
}

// leave removes a session from its socket.
func (u *udpSocket) leave(one *udpSession) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sessions, one.key)
	u.closeUnused()
}

// offer offers datagrams [from, to) of a batch to the class of a direction, and sends those that
// may leave at once.
func (t *udpSession) offer(ud *udpDirection, in *sock.Incoming, from, to int) {
	defer t.socket.server.rescue(t)
	ud.entering.Lock()
	defer ud.entering.Unlock()
	out := getOutgoing()
	for i := from; i < to; i++ {
		ud.offer(in.Train(i), out)
	}
	ud.send(out)
	out.release()
}

// offerAll offers datagrams of the client, which have waited for this session.
func (t *udpSession) offerAll(all []sock.Train) {
	defer t.socket.server.rescue(t)
	t.up.entering.Lock()
	defer t.up.entering.Unlock()
	out := getOutgoing()
	for _, one := range all {
		t.up.offer(one, out)
	}
	t.up.send(out)
	out.release()
}

// answers passes on what the upstream sends, until the session ends. An ICMP error, for example
// because nobody listens there, does not end it, but counts as a failure of the address.
func (t *udpSession) answers() {
	defer t.socket.server.rescue(t)
	in := &sock.Reader{}
	for {
		n, err := in.Read(t.up.Raw)
		if err != nil {
			return
		}
		if err := in.Failure(); err != nil {
			t.failed(err)
		} else {
			t.at.Answered()
		}
		t.offer(&t.down, in.Batch, 0, n)
		in.Release()
	}
}

// failed counts an ICMP error that says that the upstream cannot be reached.
func (t *udpSession) failed(err error) {
	if upstream.TellsOfTarget(err) {
		t.service.countFailure(t.countedAs(), err)
	}
	t.at.Failed(time.Now(), err)
}

// reclassify implements session.
func (t *udpSession) reclassify(r *routes, gone map[*shaper.Class]bool) (settle func()) {
	who := t.describe()
	oldUp, oldDown := t.up.class.Load(), t.down.class.Load()
	up, down := r.reclassify(who, t.conf, oldUp, oldDown)
	now := time.Now()
	movesUp, movesDown := gone[oldUp.Named()] && up != oldUp, gone[oldDown.Named()] && down != oldDown
	if movesUp {
		up = up.Join(now, who)
		t.permit.Move(up)
		t.up.move(now, up)
		if len(t.socket.server.marks.of()) > 0 {
			t.remark()
		}
	}
	if movesDown {
		t.down.move(now, down.Join(now, who))
	}
	return t.settling(movesUp, movesDown)
}

// settling returns what lets datagrams enter the class again in the directions that have moved; nil: neither has.
func (t *udpSession) settling(up, down bool) (settle func()) {
	switch {
	case up && down:
		return func() {
			t.up.entering.Unlock()
			t.down.entering.Unlock()
		}
	case up:
		return t.up.entering.Unlock
	case down:
		return t.down.entering.Unlock
	}
	return nil
}

// abort implements session: it ends the session, and drops what waits in the classes.
func (t *udpSession) abort(result stats.Result) bool {
	if t.ended.Swap(true) {
		return false
	}
	t.socket.leave(t)
	t.up.dropPending(dropReason(result))
	t.down.dropPending(dropReason(result))
	t.quit()
	t.closeUpstream()
	t.service.stats.Ended[result].Add(1)
	t.service.stats.Open.Add(-1)
	t.service.gate.leave()
	t.socket.server.sessions.remove(t.id)
	return true
}

// closeUpstream closes the socket to the upstream, if there is one, and releases the foreign socket
// that answers leave from.
func (t *udpSession) closeUpstream() {
	if t.hasForeign {
		t.socket.server.foreign.release(t.socket.server, t.destination)
	}
	if t.upstream != nil {
		t.upstream.Close() // ends answers
		t.socket.server.udpUpstreams.leave()
	}
}

// tend implements session: it ends a session that has been idle for its idle timeout. If its
// socket is closing, it ends a session that has been idle since the last check.
func (t *udpSession) tend(now time.Time) {
	waiting := t.up.pending.Load() > 0 || t.down.pending.Load() > 0
	active := t.up.active.Swap(false)
	active = t.down.active.Swap(false) || active
	if !waiting && isOld(t.conf, t.id, now.Sub(t.started)) {
		t.abort(stats.Aged) // the next datagram of the client begins another session
		return
	}
	if waiting || active || t.quietSince.IsZero() {
		t.quietSince = now
		return
	}
	if t.socket.is(udpClosing) || now.Sub(t.quietSince) >= time.Duration(t.conf.IdleTimeout) {
		t.abort(stats.OK) // a UDP session has no other end
	}
}

// turnsBetween implements session.
func (t *udpSession) turnsBetween() uint64 {
	lasts := t.conf.IdleTimeout
	if t.conf.MaxSessionAge > 0 {
		lasts = min(lasts, t.conf.MaxSessionAge)
	}
	if time.Duration(lasts) < patientFrom || t.socket.is(udpClosing) {
		return 1
	}
	return patientTurns * uint64(min(time.Duration(lasts)/patientFrom, mostPatience))
}

// info implements session.
func (t *udpSession) info() Session {
	return Session{
		ID: t.id, Listener: t.conf.Name, Protocol: string(policy.UDP), Started: t.started,
		Client: t.key.client.String(), User: t.describe().User, Upstream: t.name, UpstreamNumber: t.number, Destination: destinationName(t.destination),
		Bind: bindName(t.from), Class: nameOf(t.up.class.Load()), ReturnClass: nameOf(t.down.class.Load()),
		Upward: t.up.moved.Load(), Downward: t.down.moved.Load(),
		Waiting: t.unwritten(),
	}
}

// unwritten implements session.
func (t *udpSession) unwritten() int64 { return t.up.held.Load() + t.down.held.Load() }

// remark implements session.
func (t *udpSession) remark() {
	if t.up.Raw != nil {
		t.up.Raw.Control(func(fd uintptr) {
			sock.Descriptor(fd).Set(sock.Mark, int(t.socket.server.marks.mark(t.up.class.Load())))
		})
	}
}

// mirror implements session.
func (t *udpSession) mirror(s *shadow) {
	now := time.Now()
	guest := s.guest(t.describe(), t.conf, now)
	if guest != nil {
		guest.Stay(now)
	}
	t.copyTo(guest, now)
}

// copyTo sends copies of all datagrams to a guest of a trial from now on, and ends the guest before;
// nil: it sends none. If the session has ended, copyTo ends the new guest, too.
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

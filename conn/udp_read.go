package conn

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"

	"shaper/entry"
	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
	"shaper/upstream"
)

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
	case err != errNoPermit && u.conf().Mode.IsEntry():
		u.server.warn(sv, sv.terms.Load().Name, unreachable, []any{"client", key.client, "err", fmt.Errorf("dial %v: %w", key.asked, err)})
	case err != errNoPermit && !errors.Is(err, net.ErrClosed):
		u.server.warn(sv, sv.terms.Load().Name, unreachable, []any{"client", key.client, "upstream", sv.terms.Load().Upstream, "err", err})
	}
	sv.stats.Ended[notOpened(err)].Add(1)
	return nil
}

// denied counts a datagram whose destination the policy does not allow.
func (u *udpSocket) denied(key udpKey) {
	sv := u.service.Load()
	sv.stats.Stray.Add(stats.StrayDenied)
	u.server.warn(sv, sv.terms.Load().Name, denied, []any{"client", key.client, "err", fmt.Errorf("%v: %w", key.asked, errDenied)})
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

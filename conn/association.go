package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"shaper/entry"
	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
)

// association is the relay of a SOCKS client that sends datagrams (UDP ASSOCIATE in RFC 1928). The
// session of its connection carries nothing else, and both end together. Each destination of the
// client has a UDP session, as each client of a UDP listener has.
type association struct {
	session *tcpSession
	socket  *udpSocket
	user    string
	users   *entry.Users    // by which the user has logged in
	port    uint16          // to which the client has connected by TCP
	owner   string          // in relayCount: the user, or the address of a client that has not logged in
	ctx     context.Context // for lookups; close ends it
	cancel  context.CancelFunc

	// Owned by the goroutine that reads the socket.
	client  netip.AddrPort // its port is 0 as long as it is not known
	headers entry.Datagrams

	mu      sync.Mutex          // guards waiting; it comes after the session's lock, and before the socket's
	waiting map[udpKey]*waiting // datagrams to names that are looked up
}

// waiting are the first datagrams to a name that is looked up.
type waiting struct {
	held  []sock.Train
	bytes int
}

// The bounds of an association.
const (
	maxDestinations = 256 // sessions and lookups together
	maxLookups      = 16  // at a time
	maxHeld         = 16  // datagrams for one name
	maxHeldBytes    = 32 << 10
)

var (
	errUnlimited = errors.New("the class of the listener counts neither bytes nor packets, so it would not limit datagrams; give the listener one that does")
	errRelays    = fmt.Errorf("the client has %d relays of datagrams already, as many as it may have", maxRelays)
	errNoAddress = errors.New("a relay of datagrams needs a client with an address")
)

// associate makes a relay for the client of t; who describes it. at is the address of ours that the
// client has reached, and from is where the client has said that it will send from. No lock is held.
func associate(t *tcpSession, who policy.Conn, at netip.Addr, from netip.AddrPort) (*association, error) {
	a := &association{session: t, user: who.User, port: who.Port, owner: who.User, waiting: map[udpKey]*waiting{}}
	client := who.Source.Addr().WithZone("")
	if a.owner == "" {
		a.owner = client.String()
	}
	switch {
	case !client.IsValid() || !at.IsValid():
		return nil, errNoAddress
	case !t.server.routing.limitsDatagrams(who, t.conf.relayed):
		return nil, errUnlimited
	case !t.service.relays.enter(a.owner):
		return nil, errRelays
	}
	a.client = netip.AddrPortFrom(client, 0)
	if from.Addr() == client || from.Addr().IsUnspecified() { // otherwise something between has changed the address, and the port too
		a.client = netip.AddrPortFrom(client, from.Port())
	}
	if err := a.bind(at); err != nil {
		t.service.relays.leave(a.owner)
		return nil, err
	}
	a.ctx, a.cancel = context.WithCancel(t.server.ctx)
	return a, nil
}

// bind binds the socket of the relay to a free port of an address.
func (a *association) bind(at netip.Addr) error {
	s := a.session.server
	if !s.udpUpstreams.tryEnter() {
		return errDescriptors
	}
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
	if err == nil {
		a.socket, err = s.newUDPSocket(c)
	}
	if err != nil {
		s.udpUpstreams.leave()
		return err
	}
	a.socket.addressing = a
	s.relayAt.enter(a.local())
	return nil
}

// local returns where the client sends its datagrams.
func (a *association) local() netip.AddrPort { return a.socket.local().addr }

// serve starts to read datagrams.
func (a *association) serve() { a.socket.serve(a.session.service) }

// close ends the relay and its UDP sessions. The session's lock may be held.
func (a *association) close(result stats.Result) {
	a.cancel()
	a.mu.Lock()
	clear(a.waiting)
	a.mu.Unlock()
	a.socket.end(result)
	a.session.server.relayAt.leave(a.local())
	a.session.server.udpUpstreams.leave()
	a.session.service.relays.leave(a.owner)
}

// keyOf implements addressing. Only the client may use the relay.
func (a *association) keyOf(in *sock.Incoming, i int) (key udpKey) {
	defer a.session.server.rescue(a.session)
	from := in.Source(i)
	if from.Addr() != a.client.Addr() || a.client.Port() != 0 && from.Port() != a.client.Port() {
		a.stray(stats.StraySource)
		return key
	}
	to, size, err := a.headers.Read(in.Train(i).Payload)
	switch err {
	case nil:
	case entry.ErrFragment:
		a.stray(stats.StrayFragment)
		return key
	default:
		a.stray(stats.StrayHeader)
		return key
	}
	a.client = from
	in.Skip(i, size)
	return udpKey{from, to}
}

// stray counts a datagram that is dropped.
func (a *association) stray(reason string) { a.session.service.stats.Stray.Add(reason) }

// admit implements addressing.
func (a *association) admit(key udpKey, peer sock.Peer, t sock.Train) bool {
	u := a.socket
	count := u.count()
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[key]
	_, known := seen(u.server.names, key.asked)
	switch {
	case w != nil:
		if !w.hold(t) {
			a.stray(stats.StrayName)
		}
	case count+len(a.waiting) >= maxDestinations:
		a.stray(stats.StrayMany)
	case known:
		return true
	case len(a.waiting) >= maxLookups || a.ctx.Err() != nil:
		a.stray(stats.StrayName)
	default:
		w = &waiting{}
		w.hold(t)
		a.waiting[key] = w
		u.server.wg.Go(func() { a.lookUp(key, peer) })
	}
	return false
}

// hold keeps a copy of a datagram. It returns false if there is no room.
func (w *waiting) hold(t sock.Train) bool {
	if len(w.held) == maxHeld || len(w.held) > 0 && w.bytes+len(t.Payload) > maxHeldBytes {
		return false
	}
	w.held = append(w.held, sock.Train{Payload: slices.Clone(t.Payload), Size: t.Size})
	w.bytes += len(t.Payload)
	return true
}

// lookUp looks up the name of a destination, begins its session, and offers it what was held.
func (a *association) lookUp(key udpKey, peer sock.Peer) {
	s := a.session.server
	defer s.rescue(a.session)
	ctx, cancel := context.WithTimeout(a.ctx, time.Duration(a.socket.conf().ConnectTimeout))
	defer cancel()
	_, err := s.names.Find(ctx, key.asked.Upstream())
	var one *udpSession
	if err == nil {
		one = a.socket.begin(key, peer)
	}
	a.mu.Lock()
	w := a.waiting[key]
	delete(a.waiting, key)
	a.mu.Unlock()
	switch {
	case w == nil: // close was called
	case one != nil:
		one.offerAll(w.held)
	case err != nil:
		for range w.held {
			a.stray(stats.StrayName)
		}
	default:
		for _, t := range w.held {
			a.socket.lost(key, t)
		}
	}
}

// describe implements addressing.
func (a *association) describe(who *policy.Conn, key udpKey) {
	who.User, who.ServerName, who.Port = a.user, key.asked.Name, a.port
}

// mayBegin implements addressing.
func (a *association) mayBegin(present *terms) bool {
	return present.relayed != nil && present.admits(a.user, a.users)
}

// drive implements driver. The client says nothing more; its connection only ends.
func (a *association) drive() {
	t := a.session
	var said [512]byte
	for range 16 {
		n, err := t.client.end.Read(said[:])
		switch {
		case err == unix.EAGAIN:
			return
		case err == unix.EINTR || n > 0:
		case err != nil:
			t.finish(resultOf(err))
			return
		default:
			t.finish(stats.OK)
			return
		}
	}
	t.poller.Revisit(t)
}

// changed implements driver.
func (a *association) changed(*side) { a.drive() }

// granted implements driver. Nothing waits for a class.
func (a *association) granted(by *direction, now time.Time) { by.flow.Left(now) }

// finish implements part.
func (a *association) finish(result stats.Result) { a.close(result) }

// tend implements relay. While it has destinations, it is not idle.
func (a *association) tend(time.Time) (waits, rests bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting) > 0 || a.socket.count() > 0, false
}

// age implements relay.
func (a *association) age(time.Time, bool) { a.session.finish(stats.Aged) }

// The rest of relay does nothing here: the connection of the client carries no data.

func (*association) reach(string)                                                    {}
func (*association) drain(time.Time, bool)                                           {}
func (*association) flush()                                                          {}
func (*association) belong(time.Time, *shaper.Class, *shaper.Class)                  {}
func (*association) reroute(time.Time, *routes, policy.Conn, map[*shaper.Class]bool) {}
func (*association) copyTo(*copies)                                                  {}
func (*association) quit(time.Time, stats.Reason)                                    {}

// maxRelays bounds how many relays a user has at a listener. If nobody logs in, it bounds those of
// an address.
const maxRelays = 64

// relayCount counts the relays of each user or address.
type relayCount struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

// enter counts one more relay of an owner. It returns false if there are maxRelays already.
func (r *relayCount) enter(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts[owner] == maxRelays {
		return false
	}
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	r.counts[owner]++
	return true
}

// leave undoes enter.
func (r *relayCount) leave(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts[owner]--; r.counts[owner] == 0 {
		delete(r.counts, owner)
	}
}

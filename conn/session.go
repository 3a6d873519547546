package conn

import (
	"net/netip"
	"sync"
	"time"

	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
)

// tcpSession is one client connection and the upstream connection it leads to.
//
// Nobody waits for it: whoever has news for a session drives it on as far as it
// goes without waiting, be it the poller, whose sockets are ready, or the pacer,
// whose time has come.
type tcpSession struct {
	// What never changes.
	id      uint64
	server  *Server
	service *service
	poller  *sock.Poller
	conf    *policy.Listener // as it was when the client connected
	secure  security         // at that time
	started time.Time
	source  netip.AddrPort
	port    uint16 // that the client connected to

	sock.Due // of the poller

	// mu guards all that follows. The lock of the routes comes before it; those of the
	// server, of pollers, of ends in memory and of classes come after it.
	mu    sync.Mutex
	stage stage

	client, upstream side
	up, down         direction // towards the upstream, and back
	relay            relay     // what goes on between the two
	place            place     // in the class
	dialling         dialling
	target                   // of the dial
	copies           *copies // of what goes through the session, for a policy in the shadow; nil: there is none
	quietSince       time.Time
}

// target is where a session leads to.
type target struct {
	// destination is what rules match: the upstream's address, once there is one; before,
	// where the first of the list is, if a rule asked.
	destination netip.AddrPort
	located     bool   // a rule asked, and the classes are those of destination
	name        string // of the upstream; "" until it is reached
	number      int    // of that among those of the listener, from 1; 0 until then
}

// stage is how far a session has come.
type stage uint8

const (
	arriving   stage = iota // a handshake with its client, or rules that ask for the destination, come first
	queued                  // it waits for a slot, one of max_connections
	resolving               // it waits for the address of an upstream
	opening                 // it waits for its class, which may count connections
	connecting              // it dials
	relaying
	cutting // its end waits for what came before it to arrive; see cutOff
	ended
)

// newSession returns a session of an accepted connection. It has no class yet, and nobody
// knows it.
func newSession(s *Server, client sock.End, source netip.AddrPort, port uint16, sv *service) *tcpSession {
	now := sv.terms.Load()
	t := &tcpSession{
		id: s.lastID.Add(1), server: s, service: sv, conf: &now.Listener, secure: now.secure, started: time.Now(),
		source: source, port: port,
	}
	t.client = side{session: t, end: client}
	t.upstream = side{session: t, end: noEnd}
	t.up.init(t, stats.Upstream, nil)
	t.down.init(t, stats.Downstream, nil)
	t.relay = newStreams(t)
	t.dialling.session, t.place.session = t, t
	t.poller = s.pollers[t.id%uint64(len(s.pollers))]
	return t
}

// start starts the session of an accepted connection, which has entered the gate of its
// service.
func (s *Server) start(client sock.End, source netip.AddrPort, port uint16, sv *service) {
	t := newSession(s, client, source, port, sv)
	sv.stats.Open.Add(1)
	if !s.add(t, t.id) {
		t.client.reset()
		sv.stats.Open.Add(-1)
		sv.gate.leave()
		return
	}
	defer s.rescue(t)
	if config := t.secure.client; config != nil {
		t.drive(func(t *tcpSession) { t.terminate(config) })
		return
	}
	t.enter()
}

// enter begins the session as soon as it is known where it leads to.
func (t *tcpSession) enter() {
	if t.server.asksWhere(t.conf.Name) {
		t.drive(func(t *tcpSession) { t.dialling.locate() })
		return
	}
	t.begin()
}

// begin puts the session into its classes, and drives it for the first time.
func (t *tcpSession) begin() {
	defer t.server.rescue(t)
	t.classify()
	t.drive((*tcpSession).open)
}

// open queues the connection in its class. If a reload has just removed the listener,
// there is no class, and the session ends.
func (t *tcpSession) open() {
	if t.up.flow.Class() == nil {
		t.finish(stats.ByOperator)
		return
	}
	if !t.watchesClient() {
		return
	}
	if t.place.acquire(); t.stage == queued { // it has to wait
		t.dialling.forget()
	}
}

// watchesClient lets the poller tell of the client. If that is not possible, it ends the
// session and returns false.
func (t *tcpSession) watchesClient() bool {
	if t.client.key != 0 {
		return true
	}
	if err := t.client.watch(); err != nil {
		t.server.log.Error("a connection cannot be watched", "listener", t.conf.Name, "err", err)
		t.finish(stats.DialFailed)
		return false
	}
	return true
}

// goOn does what there is to do, unless the class is to be waited for.
func (t *tcpSession) goOn() {
	switch t.stage {
	case queued:
		if t.place.slot.Held() {
			t.place.taken()
		}
	case opening:
		if !t.up.waiting {
			t.dialling.begin()
		}
	case relaying:
		t.relay.drive()
	}
}

// proceed goes on after something has happened to a socket.
func (t *tcpSession) proceed(s *side) {
	switch t.stage {
	case arriving, queued, resolving, opening, connecting:
		if s == &t.client {
			t.dialling.clientLeaves()
		} else if s.Writable {
			t.dialling.dialled()
		}
	case relaying:
		t.goOn()
	}
}

// Turn implements sock.Turner.
func (t *tcpSession) Turn() { t.drive((*tcpSession).goOn) }

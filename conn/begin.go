package conn

import (
	"net/netip"
	"time"

	"shaper/sock"
	"shaper/stats"
)

// newSession returns the session of an accepted connection. It has no class yet, and is not
// in the registry.
func newSession(s *Server, client sock.End, source netip.AddrPort, at *localAddr, sv *service) *tcpSession {
	t := &tcpSession{
		id: s.lastID.Add(1), server: s, service: sv, conf: sv.terms.Load(), started: time.Now(), source: source, at: at,
	}
	t.client = side{session: t, end: client}
	t.upstream = side{session: t, end: noEnd}
	t.up.init(t, stats.Upstream, nil)
	t.down.init(t, stats.Downstream, nil)
	t.relay, t.driver = t.relayBytes(), &t.dialling
	t.dialling.session, t.place.session = t, t
	t.course.walk = t.conf.leads.Walk()
	t.poller = s.pollers[t.id%uint64(len(s.pollers))]
	return t
}

// start starts the session of an accepted connection. The caller has entered the gate of sv
// for it. If the server is stopping, start resets the connection and leaves the gate. The
// goroutine of a poller calls it, without a lock.
func (s *Server) start(client sock.End, source netip.AddrPort, at *localAddr, sv *service) {
	t := newSession(s, client, source, at, sv)
	sv.stats.Open.Add(1)
	if !s.add(t, t.id) {
		t.client.reset()
		sv.stats.Open.Add(-1)
		sv.gate.leave()
		return
	}
	defer s.rescue(t)
	if t.tellsAddress() {
		t.greeting = newGreeting(t)
		t.do(func(t *tcpSession) { t.hearHeader(t.secured) })
		return
	}
	t.secured()
}

// secured does the TLS handshake with the client if it needs one, and enters the session. The
// session's lock is not held.
func (t *tcpSession) secured() {
	if config := t.conf.secure.client; config != nil {
		t.do(func(t *tcpSession) { t.client.terminate(config, t.come) })
		return
	}
	t.come()
}

// come lets the client of an entry say where it wants to go, and enters the session. The session's
// lock is not held.
func (t *tcpSession) come() {
	if t.conf.Mode.IsEntry() {
		t.do(func(t *tcpSession) { t.hearEntry(t.enter) })
		return
	}
	t.enter()
}

// enter begins the session, once its client has said what comes before. If a rule asks for the
// destination, enter looks it up first. The session's lock is not held.
func (t *tcpSession) enter() {
	if t.server.routing.asksWhere(t.conf.Name) {
		t.do((*tcpSession).locate)
		return
	}
	t.begin()
}

// begin puts the session into its classes and opens it. The session's lock is not held: the
// lock of the routes comes before it.
func (t *tcpSession) begin() {
	defer t.server.rescue(t)
	t.classify()
	t.do((*tcpSession).open)
}

// open queues the connection in its class. If a reload has just removed the listener,
// there is no class, and the session ends. The session's lock is held.
func (t *tcpSession) open() {
	if t.up.flow.Class() == nil {
		t.finish(stats.ByOperator)
		return
	}
	if !t.watchClient() {
		return
	}
	t.dialling.awaitSlot()
	if t.stage == queued { // it waits for a slot, perhaps until the address is stale
		t.dialling.search.forget(&t.course)
	}
}

// locate looks up the destination of the session: the address of the first upstream that has
// one. When it is found, another goroutine calls begin. The session's lock is held.
func (t *tcpSession) locate() {
	if t.watchClient() {
		t.dialling.found = t.begin
		t.dialling.tryUpstream()
	}
}

// Turn implements sock.Turner: it drives the session.
func (t *tcpSession) Turn() { t.do(func(t *tcpSession) { t.driver.drive() }) }

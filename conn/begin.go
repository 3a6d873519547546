package conn

import (
	"net/netip"
	"time"

	"shaper/policy"
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
	t.dialling = &dialling{session: t}
	t.relay, t.driver = t.streams.begin(t), t.dialling
	t.permit.session = t
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
	if !s.sessions.add(t, t.id) {
		t.client.reset()
		sv.stats.Open.Add(-1)
		sv.gate.leave()
		return
	}
	defer s.rescue(t)
	admission{t}.greet()
}

// admission takes a session to its classes. Before them come the PROXY header of its client, TLS
// with it, what the client of an entry says, and the address of the upstream if a rule asks for
// it. One goroutine at a time takes the steps, without the lock of the session: the lock of the
// routes comes before it.
type admission struct{ session *tcpSession }

// greet reads the PROXY header of the client, if it sends one.
func (a admission) greet() {
	t := a.session
	if !t.conf.expectsHeader(t.source.Addr()) {
		a.secure()
		return
	}
	t.do(func(t *tcpSession) {
		t.greeting = newGreeting(t)
		t.greeting.readHeader(a.secure)
	})
}

// secure does the TLS handshake with the client, if it needs one.
func (a admission) secure() {
	if config := a.session.conf.secure.client; config != nil {
		a.session.do(func(t *tcpSession) { t.client.terminate(config, a.enter) })
		return
	}
	a.enter()
}

// enter finds out where the client of an entry wants to go.
func (a admission) enter() {
	mode := a.session.conf.Mode
	if !mode.IsEntry() {
		a.locate()
		return
	}
	a.session.do(func(t *tcpSession) {
		if t.greeting == nil {
			t.greeting = newGreeting(t)
		}
		if mode == policy.Transparent {
			t.greeting.entrance.follow(a.locate)
		} else {
			t.greeting.entrance.read(a.locate)
		}
	})
}

// locate looks up the destination of the session if a rule asks for it: the address of the first
// upstream that has one.
func (a admission) locate() {
	if t := a.session; !t.server.routing.asksWhere(t.conf.Name) {
		a.begin()
		return
	}
	a.session.do(func(t *tcpSession) {
		if t.watchClient() {
			t.dialling.found = a.begin
			t.dialling.tryUpstream()
		}
	})
}

// begin puts the session into its classes and queues it there.
func (a admission) begin() {
	t := a.session
	defer t.server.rescue(t)
	a.classify()
	t.do(func(t *tcpSession) {
		if !t.watchClient() {
			return
		}
		if t.dialling.clientLeaves(); t.stage == ended { // no event follows if it has left during its greeting
			return
		}
		t.dialling.queue()
		if t.stage == queued { // it waits for a permit, perhaps until the address is stale
			t.dialling.search.forget(&t.course)
		}
	})
}

// classify puts the session into its classes, unless it has ended.
func (a admission) classify() {
	t, routing := a.session, &a.session.server.routing
	routing.mu.RLock()
	defer routing.mu.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage != ended {
		t.enterClasses(t.started)
	}
}

// Turn implements sock.Turner: it drives the session.
func (t *tcpSession) Turn() { t.do(func(t *tcpSession) { t.driver.drive() }) }

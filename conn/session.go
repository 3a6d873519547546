package conn

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// tcpSession is one client connection and the upstream connection it leads to.
//
// Nobody waits for it: whoever has news for a session drives it on as far as it
// goes without waiting, be it the poller, whose sockets are ready, or the pacer,
// whose time has come.
type tcpSession struct {
	id      uint64
	server  *Server
	service *service
	poller  *poller
	conf    *policy.Listener // as it was when the client connected
	secure  security         // at that time
	started time.Time
	source  netip.AddrPort
	port    uint16 // that the client connected to
	due

	mu    sync.Mutex // guards all that follows
	stage stage
	// destination is what rules match: the upstream's address, once there is
	// one; before, where the first of the list is, if a rule asked.
	destination      netip.AddrPort
	located          bool // a rule asked, and the classes are those of destination
	client, upstream sock
	name             string      // of the upstream; "" until it is reached
	number           int         // of that among those of the listener, from 1; 0 until then
	up, down         stream      // towards the upstream, and back
	exchange         *exchange   // of messages, which carries what the two directions have; nil: they are streams of bytes
	lingering        *time.Timer // bounds how long the client may go on once it was told that the session ends
	slot             shaper.Slot
	copies           *copies // of what goes through the session, for a policy in the shadow; nil: there is none
	dialling         dialling

	quietSince time.Time // of the janitor
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

// start makes a session of an accepted connection. The connection has entered
// the gate of its service.
func (s *Server) start(client int, source netip.AddrPort, port uint16, sv *service) {
	now := sv.terms.Load()
	t := &tcpSession{
		id: s.lastID.Add(1), server: s, service: sv, conf: &now.Listener, secure: now.secure, started: time.Now(),
		source: source, port: port,
	}
	t.client = sock{session: t, fd: client}
	t.upstream = sock{session: t, fd: -1}
	t.up.session, t.down.session = t, t
	sv.stats.Open.Add(1)
	if !s.add(t, t.id) {
		t.client.reset()
		sv.stats.Open.Add(-1)
		sv.gate.leave()
		return
	}
	t.poller = s.pollers[t.id%uint64(len(s.pollers))]
	defer s.rescue(t)
	if config := t.secure.client; config != nil {
		t.drive(func(t *tcpSession) { t.terminate(config) })
		return
	}
	t.enter()
}

// enter begins the session, when it is known where it leads to.
func (t *tcpSession) enter() {
	if t.server.asksWhere(t.conf.Name) {
		t.drive((*tcpSession).locate)
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

// drive does one thing in a session, unless that has ended. A panic ends that
// session only.
func (t *tcpSession) drive(do func(*tcpSession)) {
	defer t.server.rescue(t) // when mu is free again
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage != ended {
		do(t)
	}
}

// classify puts the session into its classes, unless it has ended already.
func (t *tcpSession) classify() {
	s := t.server
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == ended {
		return
	}
	t.enterClasses(t.started)
}

// enterClasses puts the session into the classes of its destination, and out of those
// that it was in. Nothing of it waits. The lock of the routes is held, too.
func (t *tcpSession) enterClasses(now time.Time) {
	s, who := t.server, t.describe()
	up, down := s.routes.classify(who, t.conf)
	if t.service.class != nil {
		up = t.service.class
	}
	up, down = up.Join(now, who), down.Join(now, who)
	if up != t.class() { // before its bucket goes: those who wait above it may have its place
		t.slot.Release()
	}
	t.leaveClasses(stats.Reset)
	t.exchange = nil
	t.up.init(t, stats.Upstream, up)
	t.down.init(t, stats.Downstream, down)
	t.copyTo(s.shadow, who, now)
	if t.conf.Protocol.HasMessages() && up != nil {
		t.exchange = newExchange(t)
		t.exchange.obey(s.routes, who)
	}
}

// leaveClasses takes the session out of its classes; what has not left counts as dropped.
func (t *tcpSession) leaveClasses(reason stats.Reason) {
	if t.exchange != nil {
		t.exchange.quit(reason)
	}
	t.up.quit(reason)
	t.down.quit(reason)
}

// describe returns what the rules match.
func (t *tcpSession) describe() policy.Conn {
	return policy.Conn{Listener: t.conf.Name, Source: t.source, Port: t.port, Destination: t.destination, Session: t.id}
}

// class returns the class of the session, towards the upstream; nil for none.
func (t *tcpSession) class() *shaper.Class {
	if t.exchange != nil {
		return t.exchange.classes[t.exchange.own]
	}
	return t.up.flow.Class()
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
	if t.acquire(); t.stage == queued { // it has to wait
		t.dialling.forget()
	}
}

// watchesClient has the session told of its client. If that is not possible it ends the
// session, and returns false.
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

// acquire takes a slot of the class, or waits for one.
func (t *tcpSession) acquire() {
	t.stage = queued
	class := t.up.flow.Class()
	t.copies.open(t)
	switch {
	case t.slot.Acquire(class, t):
		t.admitted()
	case class.Policy().OverflowFor(t.conf.Protocol) == policy.Refuse:
		t.up.refuse(stats.QueueFull)
	default:
		t.waitForSlot(time.Duration(class.Policy().MaxWait))
	}
}

// waitForSlot ends a wait that takes too long; how long it will take, nobody knows
// before. A patience of 0 is without end.
func (t *tcpSession) waitForSlot(patience time.Duration) {
	if patience == 0 {
		return
	}
	t.dialling.timer = time.AfterFunc(patience, func() {
		t.drive(func(t *tcpSession) {
			if t.stage == queued {
				t.up.refuse(stats.MaxWait)
			}
		})
	})
}

// Acquired implements shaper.SlotOwner: a slot that was waited for is there.
func (t *tcpSession) Acquired() { t.poller.revisit(t) }

// admitted goes on with a session that has a slot: to an address, and then to its class.
func (t *tcpSession) admitted() {
	if timer := t.dialling.timer; timer != nil {
		timer.Stop()
	}
	t.stage = resolving
	t.tryAddress()
}

// goOn does what there is to do, unless the class is to be waited for.
func (t *tcpSession) goOn() {
	switch t.stage {
	case queued:
		if t.slot.Held() {
			t.admitted()
		}
	case opening:
		if !t.up.waiting {
			t.dial()
		}
	case relaying:
		if t.exchange != nil {
			t.exchange.goOn(turnEvents)
			return
		}
		t.up.move(turnBytes)
		t.down.move(turnBytes)
	}
}

// farewell is how long a client may take to read that the session ends, and to end
// it too.
const farewell = 2 * time.Second

// linger ends the session soon.
func (t *tcpSession) linger() {
	t.lingering = time.AfterFunc(farewell, func() {
		t.drive(func(t *tcpSession) { t.finish(stats.Overflow) })
	})
}

// proceed goes on after something has happened to a socket.
func (t *tcpSession) proceed(s *sock) {
	switch t.stage {
	case arriving, queued, resolving, opening, connecting:
		if s == &t.client {
			t.clientLeaves()
		} else if s.writable {
			t.dialled()
		}
	case relaying:
		t.goOn()
	}
}

// turn implements turner.
func (t *tcpSession) turn() { t.drive((*tcpSession).goOn) }

// rescue is deferred where a session is driven: a panic ends that session only.
func (s *Server) rescue(one session) {
	if p := recover(); p != nil {
		info := one.info()
		s.log.Error("session panicked", "session", info.ID, "listener", info.Listener,
			"panic", p, "stack", string(debug.Stack()))
		one.abort(stats.Panicked)
	}
}

// abort ends the session from outside; false where it has ended already.
func (t *tcpSession) abort(result stats.Result) (aborted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == ended {
		return false
	}
	t.finish(result)
	return true
}

// directions returns the two ways of the session.
func (t *tcpSession) directions() [2]*direction {
	return [...]*direction{&t.up.direction, &t.down.direction}
}

// fail ends the session behind what it has passed on before.
func (t *tcpSession) fail(result stats.Result) {
	if t.exchange != nil {
		t.exchange.flush()
	}
	t.finish(result)
}

// finish ends the session: cleanly where the result is OK, else with a reset to
// both sides, so that what is missing never looks like a clean end.
func (t *tcpSession) finish(result stats.Result) {
	if t.stage == ended {
		return
	}
	t.left() // else it will not
	t.stage = ended
	t.dialling.stop()
	t.slot.Release()
	if t.lingering != nil {
		t.lingering.Stop()
	}
	t.leaveClasses(lossOf(result))
	t.copies.end(result == stats.OK)
	if result == stats.OK {
		t.client.close()
		t.upstream.close()
	} else {
		t.client.reset()
		t.upstream.reset()
	}
	t.service.stats.Ended[result].Add(1)
	t.service.stats.Open.Add(-1)
	t.service.gate.leave()
	t.log(result)
	t.server.remove(t.id)
}

func (t *tcpSession) log(result stats.Result) {
	if !t.server.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	t.server.log.Debug("session ended", "session", t.id, "listener", t.conf.Name,
		"client", t.source, "result", result.String(), "bytes_upstream", t.up.moved, "bytes_downstream", t.down.moved)
}

// resultOf tells from the error of a socket how a session ended.
func resultOf(err error) stats.Result {
	if err == unix.ETIMEDOUT { // see setUserTimeout
		return stats.TimedOut
	}
	return stats.ResetByPeer
}

// lossOf tells from how a session ended why its bytes were dropped.
func lossOf(r stats.Result) stats.Reason {
	switch r {
	case stats.TimedOut:
		return stats.Timeout
	case stats.ByOperator:
		return stats.Closed
	case stats.Drained:
		return stats.Stopped
	case stats.Overflow:
		return stats.QueueFull
	}
	return stats.Reset
}

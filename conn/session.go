package conn

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// Session is what is known of an open session, for people.
type Session struct {
	ID          uint64    `json:"id"`
	Listener    string    `json:"listener"`
	Protocol    string    `json:"protocol"`
	Client      string    `json:"client"`
	Upstream    string    `json:"upstream"` // "" until one is reached
	Class       string    `json:"class"`
	ReturnClass string    `json:"return_class,omitempty"`
	Started     time.Time `json:"started"`
	Upward      uint64    `json:"bytes_upstream"`   // sent to the upstream
	Downward    uint64    `json:"bytes_downstream"` // sent to the client
	Waiting     int64     `json:"waiting_bytes"`    // read, and held until the class lets them go
}

// tcpSession is one client connection and the upstream connection it leads to.
type tcpSession struct {
	id      uint64
	server  *Server
	service *service
	conf    *policy.Listener // as it was when the client connected
	started time.Time
	client  streamConn
	source  netip.AddrPort
	port    uint16 // that the client connected to
	// destination is what rules match: the upstream's address, once there is
	// one; before, where the first of the list is, if a rule asked.
	destination netip.AddrPort

	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc

	up, down half         // towards the upstream, and back
	running  atomic.Int32 // goroutines that serve the session; the last of them ends it
	ended    atomic.Int32 // the first abort's stats.Result; OK: none

	// place guards what others look at while the session sets itself up: the
	// flows of up and down, and upstream.
	place    sync.Mutex
	upstream stream

	quietSince time.Time // of the janitor
}

// start makes a session of an accepted connection, and runs it. The connection
// has entered the gate of its service.
func (s *Server) start(client streamConn, sv *service) {
	t := &tcpSession{
		server:  s,
		service: sv,
		conf:    sv.conf.Load(),
		started: time.Now(),
		client:  client,
		source:  addrPortOf(client.RemoteAddr()),
		port:    addrPortOf(client.LocalAddr()).Port(),
	}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.running.Store(1)
	if !s.add(t, &t.id) {
		reset(client)
		sv.gate.leave()
		return
	}
	sv.stats.Open.Add(1)
	s.wg.Go(t.run)
}

// run takes a session from its classification to where both directions run.
func (t *tcpSession) run() { t.guard(t.serve) }

func (t *tcpSession) serve() error {
	if !t.classify() {
		return errRemoved
	}
	if err := t.up.waitFor(shaper.Cost{Connections: 1}); err != nil {
		return err
	}
	t.up.left(0, 0, 1)
	if err := t.connect(); err != nil {
		return err
	}
	return t.relay()
}

// classify puts the session into its classes; false where it has none, since a
// reload has just taken its listener away.
func (t *tcpSession) classify() bool {
	s := t.server
	if s.needsDestination(t.conf.Name) {
		t.destination = t.firstDestination() // may take a while
	}
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	up, down := s.routes.classify(t.describe(), t.conf)
	if t.service.class != nil {
		up = t.service.class
	}
	t.place.Lock()
	defer t.place.Unlock()
	t.up.init(t, stats.Upstream, up)
	t.down.init(t, stats.Downstream, down)
	return up != nil
}

func (s *Server) needsDestination(listener string) bool {
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	return s.routes.classifier.NeedsDestination(listener)
}

// describe returns what the rules match.
func (t *tcpSession) describe() policy.Conn {
	return policy.Conn{Listener: t.conf.Name, Source: t.source, Port: t.port, Destination: t.destination}
}

// reclassify moves the session out of classes that are gone.
func (t *tcpSession) reclassify(r *routes, gone map[*shaper.Class]bool) {
	t.place.Lock()
	defer t.place.Unlock()
	if t.up.flow == nil { // not classified yet: it will be, by the new routes
		return
	}
	up, down := t.up.flow.Class(), t.down.flow.Class()
	if !gone[up] && !gone[down] {
		return
	}
	newUp, newDown := r.classify(t.describe(), t.conf)
	if newUp == nil { // it stays where it is, rather than go on unlimited
		return
	}
	if gone[up] {
		t.up.flow.Move(newUp)
	}
	if gone[down] {
		t.down.flow.Move(newDown)
	}
}

// guard runs one goroutine of the session, which an error aborts.
func (t *tcpSession) guard(f func() error) {
	defer t.leave()
	defer t.server.rescue(t)
	if err := f(); err != nil {
		t.abort(resultOf(err))
	}
}

func (t *tcpSession) leave() {
	if t.running.Add(-1) == 0 {
		t.end()
	}
}

// rescue is deferred where a session is served: a panic ends that session only.
func (s *Server) rescue(one session) {
	if p := recover(); p != nil {
		info := one.info()
		s.log.Error("session panicked", "session", info.ID, "listener", info.Listener,
			"panic", p, "stack", string(debug.Stack()))
		one.abort(stats.Panicked)
	}
}

// abort ends the session with a reset to both sides, so that what is missing
// never looks like a clean end. The first call's result is the one that counts.
func (t *tcpSession) abort(result stats.Result) bool {
	if !t.ended.CompareAndSwap(int32(stats.OK), int32(result)) {
		return false
	}
	t.cancel(nil)
	t.reset()
	return true
}

func (t *tcpSession) reset() {
	reset(t.client)
	t.place.Lock()
	defer t.place.Unlock()
	if t.upstream.conn != nil {
		reset(t.upstream.conn)
	}
}

// end closes what is open and takes the session out of the registry.
func (t *tcpSession) end() {
	t.cancel(nil)
	result := stats.Result(t.ended.Load())
	if result != stats.OK { // whoever aborts it may not have come that far, and a FIN would go first
		t.reset()
	}
	t.client.Close()
	if t.upstream.conn != nil {
		t.upstream.conn.Close()
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
		"client", t.source, "result", result.String(), "bytes_upstream", t.up.moved.Load(), "bytes_downstream", t.down.moved.Load())
}

func (t *tcpSession) info() Session {
	t.place.Lock()
	defer t.place.Unlock()
	one := Session{
		ID: t.id, Listener: t.conf.Name, Protocol: string(policy.TCP), Started: t.started,
		Client: t.source.String(), Upstream: t.upstream.name,
		Upward: t.up.moved.Load(), Downward: t.down.moved.Load(),
		Waiting: t.up.held.Load() + t.down.held.Load(),
	}
	if t.up.flow != nil {
		one.Class, one.ReturnClass = nameOf(t.up.flow.Class()), nameOf(t.down.flow.Class())
	}
	return one
}

func nameOf(c *shaper.Class) string {
	if c == nil {
		return ""
	}
	return c.Name()
}

var errRemoved = errors.New("the listener was removed, and its class")

// resultOf tells from an error how a session ended.
func resultOf(err error) stats.Result {
	switch {
	case errors.Is(err, shaper.ErrQueueFull), errors.Is(err, shaper.ErrTooLong):
		return stats.Overflow
	case errors.Is(err, errDial):
		return stats.DialFailed
	case errors.Is(err, errLeft):
		return stats.Aborted
	case errors.Is(err, errRemoved):
		return stats.ByOperator
	case errors.Is(err, unix.ETIMEDOUT): // see setUserTimeout
		return stats.TimedOut
	}
	return stats.ResetByPeer
}

// Sessions returns the open sessions, in the order in which they began.
func (s *Server) Sessions() []Session {
	var all []Session
	for _, one := range s.all() {
		all = append(all, one.info())
	}
	slices.SortFunc(all, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// CloseSession resets an open session; false where there is none of that id.
func (s *Server) CloseSession(id uint64) bool {
	s.mu.Lock()
	one := s.sessions[id]
	s.mu.Unlock()
	return one != nil && one.abort(stats.ByOperator)
}

// classify returns the classes of a connection; the second is nil where its
// way back is not shaped. One whose listener is gone belongs to the classes
// that this had; both are nil where one of those is gone too, or counts what the
// connection has none of, for nothing may go on unlimited because a name has
// gone, or means something else.
func (r *routes) classify(c policy.Conn, conf *policy.Listener) (up, down *shaper.Class) {
	d := r.classifier.Classify(c)
	if d.Class == "" {
		d = policy.Decision{Class: conf.Class, ReturnClass: conf.ReturnClass}
		if d.ReturnClass != "" && r.classes[d.ReturnClass] == nil {
			return nil, nil
		}
	}
	up, down = r.classes[d.Class], r.classes[d.ReturnClass]
	if !limits(up, conf.Protocol, stats.Upstream) || !limits(down, conf.Protocol, stats.Downstream) {
		return nil, nil
	}
	return up, down
}

// limits reports whether a class counts anything that goes this way.
func limits(c *shaper.Class, protocol policy.Protocol, way stats.Direction) bool {
	if c == nil {
		return true
	}
	switch c.Rate().Kind() {
	case unit.Packets:
		return protocol == policy.UDP
	case unit.Connections:
		return protocol == policy.TCP && way == stats.Upstream
	}
	return true
}

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"shaper/conn"
	"shaper/policy"
	"shaper/shaper"
	"shaper/state"
)

// liveEngine is the engine of a running daemon. It puts a policy in force in the classes, the
// listeners, the kernel, and the daemon's two endpoints. The keeper calls prepare, the commit
// that this returns, and set one at a time, under its own lock.
type liveEngine struct {
	// Set by newDaemon, read by all.
	shaper *shaper.Shaper
	server *conn.Server
	kernel *kernel
	fleets *fleets
	log    *slog.Logger
	api    http.Handler          // what the control socket serves
	web    http.Handler          // what daemon.http serves
	beside func(context.Context) // runs while daemon.http is served

	// Only changes touch these.
	retiring sync.WaitGroup // endpoints that have been replaced and still answer
	warned   descriptorNeed // at the last commit
	resumed  bool           // the classes have gone on from what the last process has kept

	// mu is held to write the fields below, and to read them outside changes. Only changes
	// write them, so they read them without it. No other lock is taken under mu.
	mu      sync.Mutex
	control *endpoint
	http    *endpoint   // nil: daemon.http is off
	state   *state.File // nil: a restart forgets what has been sent
}

// prepared is what a policy needs before it comes into force.
type prepared struct {
	control *endpoint
	http    *endpoint        // nil: daemon.http is off
	state   *state.File      // nil: daemon.state is off
	stores  map[string]store // by fleet
	change  *conn.Change
	kernel  func() // clears what only the policy before needed
}

// files are the certificates, keys, users and passwords that a policy names, as they were when they were
// read. They do not change.
type files struct {
	listeners conn.Files
	stores    map[string]store // by fleet
	storeErr  error            // joins one for each file of a fleet that cannot be used
}

// read implements engine.
func (s *liveEngine) read(p *policy.Policy) (all files) {
	all.listeners = conn.ReadFiles(p)
	all.stores, all.storeErr = s.fleets.readStores(p)
	return all
}

// prepare implements engine. It changes the kernel last. The error is that of open, or that of
// the kernel.
func (s *liveEngine) prepare(p *policy.Policy, named files) (commit func(), err error) {
	next, err := s.open(p, named)
	if err == nil {
		next.kernel, err = s.kernel.prepare(p)
	}
	if err != nil {
		s.discard(next)
		return nil, err
	}
	return func() { s.commit(p, next) }, nil
}

// open binds the addresses of p that are not bound yet, and opens the state file. The error is *unusable
// with everything that cannot be bound or opened, and with the files that cannot be used, or ErrRunning.
// What could be bound or opened is returned with it.
func (s *liveEngine) open(p *policy.Policy, named files) (next prepared, err error) {
	failed := &unusable{policy: p}
	next.control, err = s.bindControl(p.Daemon.Control)
	if errors.Is(err, ErrRunning) {
		return next, err // the other daemon has all the ports too
	}
	failed.add("daemon.control", err)
	next.http, err = s.bindHTTP(p.Daemon.HTTP)
	failed.add("daemon.http", err)
	next.state, err = s.openState(p.Daemon.State)
	failed.add("daemon.state", err)
	next.stores = named.stores
	failed.addListeners(named.storeErr)
	next.change, err = s.server.Prepare(p, named.listeners)
	failed.addListeners(err)
	if len(failed.errs) > 0 {
		return next, failed
	}
	return next, nil
}

// discard gives up what was prepared for a policy that does not come into force.
func (s *liveEngine) discard(next prepared) {
	discardEndpoint(next.control, s.control)
	discardEndpoint(next.http, s.http)
	s.discardState(next.state)
	if next.change != nil {
		next.change.Abort()
	}
}

// commit puts a policy in force with what was prepared for it.
func (s *liveEngine) commit(p *policy.Policy, next prepared) {
	s.shaper.SetPunctual(p.Daemon.Punctual)
	scheduled, _ := p.Scheduled(time.Now())
	s.fleets.names.set(next.state)
	members, left := s.fleets.enforce(next.stores, scheduled.Classes)
	s.shaper.SetMembers(members)
	lost := s.shaper.Apply(scheduled.Classes)
	s.replaceState(next.state) // before anything enters a class
	next.change.Commit(lost)
	s.fleets.leave(left)
	next.kernel()
	s.replace(&s.control, next.control)
	s.replace(&s.http, next.http)
	s.checkDescriptors(p)
}

// bindControl returns the endpoint of the control socket at a path: the current one if the
// path is the same and the file is there, else a new one.
func (s *liveEngine) bindControl(path string) (*endpoint, error) {
	if s.control != nil && s.control.address == path && !s.control.isGone() {
		return s.control, nil
	}
	l, err := listenControl(path)
	if err != nil {
		return nil, err
	}
	return newEndpoint("control", path, l, s.api, s.log), nil
}

// bindHTTP is bindControl for the dashboard, metrics and health. It returns nil if address is "".
func (s *liveEngine) bindHTTP(address string) (*endpoint, error) {
	switch {
	case address == "":
		return nil, nil
	case s.http != nil && s.http.address == address:
		return s.http, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if a, err := netip.ParseAddrPort(l.Addr().String()); err != nil || !a.Addr().Unmap().IsLoopback() {
		s.log.Warn("the dashboard and the metrics are open to other machines: daemon.http is not a loopback address", "http", l.Addr().String())
	}
	e := newEndpoint("http", address, l, s.web, s.log)
	e.beside = s.beside
	return e, nil
}

// discardEndpoint closes a new endpoint, bound for a policy that does not come into force. It keeps
// the current one.
func discardEndpoint(fresh, current *endpoint) {
	if fresh != nil && fresh != current {
		fresh.stop()
	}
}

// replace starts a new endpoint in the place of the current one. The old endpoint stops in a
// goroutine of its own once it has answered: it may be serving the request for this change.
func (s *liveEngine) replace(current **endpoint, fresh *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *current
	if old == fresh {
		return
	}
	if fresh != nil {
		fresh.start()
	}
	*current = fresh
	if old != nil {
		s.retiring.Go(old.stop)
	}
}

// httpAddress returns the address of the dashboard, as bound; "" if they are off.
func (s *liveEngine) httpAddress() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http == nil {
		return ""
	}
	return s.http.listener.Addr().String()
}

// set implements engine.
func (s *liveEngine) set(p *policy.Policy, classes []policy.Class) {
	now := time.Now()
	scheduled, _ := p.Scheduled(now)
	members, left := s.fleets.enforce(s.fleets.stores, scheduled.Classes)
	s.shaper.SetMembers(members)
	for _, c := range classes {
		if live := s.shaper.Class(c.Name); live != nil {
			c, _ = c.Scheduled(now)
			live.Share(now, members[c.Name])
			live.Set(now, c)
		}
	}
	s.server.BoundWaits()
	s.fleets.leave(left)
	s.kernel.set(p)
}

// close stops the endpoints, and writes what the classes remember. Nothing leaves any more, and
// no change may be under way or follow.
func (s *liveEngine) close() {
	s.replace(&s.control, nil)
	s.replace(&s.http, nil)
	s.retiring.Wait()
	s.fleets.close()
	if s.state != nil {
		s.state.Close(s.shaper.Leases(time.Now()))
	}
	s.kernel.close()
}

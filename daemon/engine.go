package daemon

import (
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
)

// sockets is the engine of a running daemon: the classes, the listeners of the
// policy, the two endpoints of the daemon's own, and what is in the kernel.
type sockets struct {
	shaper *shaper.Shaper
	server *conn.Server
	kernel *kernel
	log    *slog.Logger

	api, web http.Handler   // what the endpoints serve
	retired  sync.WaitGroup // endpoints that are replaced
	warned   descriptorNeed // as it was at the last commit

	mu            sync.Mutex
	control, http *endpoint // http is nil where it is off
}

// prepare binds what p needs and is not bound yet, and reads its certificates and keys.
// Its error is unbound, with all that cannot be bound or read.
func (s *sockets) prepare(p *policy.Policy) (commit func(), err error) {
	failed := &unbound{policy: p}
	control, err := s.bindControl(p.Daemon.Control)
	if errors.Is(err, ErrRunning) {
		return nil, err // then all the ports are taken as well
	}
	failed.add("daemon.control", err)
	web, err := s.bindHTTP(p.Daemon.HTTP)
	failed.add("daemon.http", err)
	change, err := s.server.Prepare(p)
	failed.addListeners(err)
	if len(failed.errs) > 0 {
		discard(control, s.control)
		discard(web, s.http)
		if change != nil {
			change.Abort()
		}
		return nil, failed
	}
	kernel, err := s.kernel.prepare(p)
	if err != nil {
		discard(control, s.control)
		discard(web, s.http)
		change.Abort()
		return nil, err
	}
	return func() {
		change.Commit(s.shaper.Apply(p.Classes))
		kernel()
		s.replace(&s.control, control)
		s.replace(&s.http, web)
		s.checkDescriptors(p)
	}, nil
}

// bindControl returns the endpoint of the control socket: the one that there
// is where the path stays.
func (s *sockets) bindControl(path string) (*endpoint, error) {
	if s.control != nil && s.control.address == path {
		return s.control, nil
	}
	l, err := listenControl(path)
	if err != nil {
		return nil, err
	}
	return newEndpoint("control", path, l, s.api, s.log), nil
}

// bindHTTP is bindControl for metrics and health; nil where they are off.
func (s *sockets) bindHTTP(address string) (*endpoint, error) {
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
		s.log.Warn("metrics are open to other machines: daemon.http is not a loopback address", "http", l.Addr().String())
	}
	return newEndpoint("http", address, l, s.web, s.log), nil
}

// discard closes what was bound for a policy that does not come into force.
func discard(fresh, current *endpoint) {
	if fresh != nil && fresh != current {
		fresh.stop()
	}
}

// replace starts a fresh endpoint. The old one ends when it has answered: the
// request for this very change may be among those that it serves.
func (s *sockets) replace(current **endpoint, fresh *endpoint) {
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
		s.retired.Go(old.stop)
	}
}

// httpAddress returns where metrics are; "" where they are off.
func (s *sockets) httpAddress() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http == nil {
		return ""
	}
	return s.http.listener.Addr().String()
}

func (s *sockets) set(p *policy.Policy, classes []policy.Class) {
	for _, c := range classes {
		if live := s.shaper.Class(c.Name); live != nil {
			live.Set(time.Now(), c)
		}
	}
	s.kernel.set(p)
}

// close ends the endpoints. The caller has ended all changes.
func (s *sockets) close() {
	s.replace(&s.control, nil)
	s.replace(&s.http, nil)
	s.retired.Wait()
	s.kernel.close()
}

package conn

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
)

// Change is a policy that is ready but not yet in force: its files are read and its sockets
// are bound. Either Commit or Abort ends it. One goroutine owns it.
type Change struct {
	server     *Server
	policy     *policy.Policy
	classifier *policy.Classifier
	secure     map[string]security    // by name of the listener
	access     map[string]sock.Access // likewise
	fresh      map[address]bound      // bound by Prepare
	undo       []func()               // each undoes what Prepare has changed of a socket
}

// Prepare compiles p, and binds every address that is not bound already, or whose file is gone. files
// are those of p. The policy in force and the open sessions stay as they are. The error joins one for
// each unusable file and for each address that cannot be bound. There may be one Change at a time.
func (s *Server) Prepare(p *policy.Policy, files Files) (*Change, error) {
	c := &Change{server: s, policy: p, classifier: policy.Compile(p), secure: files.secure, fresh: map[address]bound{}}
	for _, w := range files.warnings {
		s.log.Warn(w.Error())
	}
	errs := slices.Concat(files.errs, c.findOwners())
	for _, l := range p.Listeners {
		for _, text := range l.Listen {
			b, err := c.socket(addressOf(&l, text), c.access[l.Name])
			if err != nil {
				errs = append(errs, fmt.Errorf("listener.%s.listen: %w", l.Name, err))
				continue
			}
			if l.Mode == policy.Transparent {
				undo, err := b.intercept()
				if c.undo = append(c.undo, undo); err != nil {
					errs = append(errs, fmt.Errorf("listener.%s.mode: %w", l.Name, err))
				}
			}
		}
	}
	if len(errs) > 0 {
		c.Abort()
		return nil, errors.Join(errs...)
	}
	for name, one := range c.secure {
		if one.users != nil {
			one.users.Follow(s.usersOf(name))
		}
	}
	return c, nil
}

// socket returns the socket that is bound to an address, and binds one if there is none, or if
// its file is gone.
func (c *Change) socket(at address, who sock.Access) (bound, error) {
	c.server.mu.Lock()
	b := c.server.bound[at]
	c.server.mu.Unlock()
	if b != nil && !b.isGone() {
		return b, nil
	}
	if c.fresh[at] == nil {
		b, err := c.server.bind(at, who)
		if err != nil {
			return nil, err
		}
		c.fresh[at] = b
	}
	return c.fresh[at], nil
}

// bind binds an address. A UDP socket that is still closing there is taken back.
func (s *Server) bind(at address, who sock.Access) (bound, error) {
	if at.network == policy.TCP {
		return s.bindTCP(at, who)
	}
	s.mu.Lock()
	u := s.closing[at]
	s.mu.Unlock()
	if u != nil && u.revive() {
		return u, nil
	}
	return s.bindUDP(at)
}

// Abort gives up the change: it closes the sockets that Prepare has bound, and undoes what Prepare
// has changed of the other sockets.
func (c *Change) Abort() {
	for _, undo := range slices.Backward(c.undo) {
		undo()
	}
	for _, b := range c.fresh {
		b.close()
	}
}

// Commit puts the change in force: new connections follow the new policy. lost are the
// classes that Shaper.Apply of the policy has returned. Their sessions are classified again;
// all others stay as they are.
func (c *Change) Commit(lost []*shaper.Class) {
	s := c.server
	s.mu.Lock()
	c.updateServices()
	s.mu.Unlock()
	c.reroute(lost)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		c.Abort()
		return
	}
	wanted := map[address]*service{}
	for _, l := range c.policy.Listeners {
		for _, text := range l.Listen {
			wanted[addressOf(&l, text)] = s.services[l.Name]
		}
	}
	c.rebind(wanted)
}

// updateServices makes the services follow the new policy. A service whose name is gone stays
// while it has sessions. If the name comes back before they end, the service is used again, and
// they count towards its max_sessions. The server's lock is held.
func (c *Change) updateServices() {
	s, p := c.server, c.policy
	s.names.Keep(func(name string) bool {
		return slices.ContainsFunc(p.Listeners, func(l policy.Listener) bool {
			return slices.Contains(l.Upstream, name) || slices.ContainsFunc(l.Allow, func(t policy.Target) bool { return upstreamIn(t) == name })
		})
	})
	maps.Copy(s.retired, s.services)
	s.services = make(map[string]*service, len(p.Listeners))
	for _, l := range p.Listeners {
		sv := s.retired[l.Name]
		delete(s.retired, l.Name)
		if sv == nil {
			sv = s.newService(nil)
		}
		sv.put(terms{Listener: l, secure: c.secure[l.Name], access: c.access[l.Name]})
		sv.gate.setMax(l.MaxSessions)
		s.services[l.Name] = sv
	}
	for _, sv := range s.retired {
		sv.withdraw()
	}
	maps.DeleteFunc(s.retired, func(_ string, sv *service) bool {
		empty := sv.gate.empty()
		if empty {
			s.past.Add(&sv.stats)
		}
		return empty
	})
}

// reroute replaces the routes, and moves the sessions of lost classes to others.
func (c *Change) reroute(lost []*shaper.Class) {
	s := c.server
	r := &routes{classifier: c.classifier, classes: map[string]*shaper.Class{}}
	for _, class := range c.policy.Classes {
		r.classes[class.Name] = s.shaper.Class(class.Name)
	}
	s.routing.mu.Lock()
	defer s.routing.mu.Unlock()
	s.routing.routes = r
	if s.marks.set(c.policy) {
		defer s.sessions.remark()
	}
	gone := map[*shaper.Class]bool{}
	for _, class := range lost {
		gone[class] = true
	}
	for _, one := range s.sessions.all() {
		if settle := one.reclassify(r, gone); settle != nil {
			defer settle()
		}
	}
	for _, class := range lost {
		class.LetIn()
		reenter(class)
	}
}

// rebind starts the fresh sockets, gives those that stay their new service, and closes the
// rest. The server's lock is held.
func (c *Change) rebind(wanted map[address]*service) {
	s := c.server
	for at, b := range s.bound {
		switch sv := wanted[at]; {
		case c.fresh[at] != nil:
			s.log.Warn("the file of a unix socket was removed: it is bound again", "address", b.local())
			b.close()
		case sv != nil:
			b.retarget(sv)
		default:
			delete(s.bound, at)
			if b.close(); at.network == policy.UDP {
				s.closing[at] = b.(*udpSocket)
			}
		}
	}
	maps.DeleteFunc(s.closing, func(_ address, u *udpSocket) bool { return !u.is(udpClosing) })
	for at, b := range c.fresh {
		s.bound[at] = b
		b.serve(wanted[at])
	}
	s.ports = ownPortsOf(s.bound)
}

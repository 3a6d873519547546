package conn

import (
	"net/netip"
	"slices"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// shadow is a policy that gets copies of all traffic. Its classes only compute what they would
// do. nil means that no policy is in the shadow. A shadow never changes: Server.Shadow puts another
// one in its place, under the lock of the routing.
type shadow struct {
	routes
	trial *shaper.Trial
	binds map[string][]netip.Addr // by name of the listener
}

// Shadow sends copies of all traffic to the classes of trial, by the rules of p. That includes the
// traffic of open sessions. A nil p ends the copies.
func (s *Server) Shadow(p *policy.Policy, trial *shaper.Trial) {
	s.routing.mu.Lock()
	defer s.routing.mu.Unlock()
	s.routing.shadow = nil
	if p != nil {
		s.routing.shadow = &shadow{routes{policy.Compile(p), map[string]*shaper.Class{}}, trial, map[string][]netip.Addr{}}
		for _, l := range p.Listeners {
			s.routing.shadow.binds[l.Name] = l.Bind
		}
		for _, class := range trial.Classes() {
			s.routing.shadow.classes[class.Name()] = class
		}
	}
	for _, session := range s.sessions.all() {
		session.mirror(s.routing.shadow)
	}
}

// guest returns what stands for a connection in the trial; nil if no policy is in the shadow. conf is the listener of the
// connection.
func (s *shadow) guest(who policy.Conn, conf *policy.Listener, now time.Time) *shaper.Guest {
	if s == nil {
		return nil
	}
	who = s.withBind(who)
	up, down := s.classesOf(who, conf)
	return s.trial.Guest(now, who, up, down)
}

// withBind returns a connection with the Bind that it would have if the policy in the shadow were in
// force. The connection keeps its own address if the listener has that in bind. Otherwise it gets an
// address of bind that reaches the destination. s may be nil.
func (s *shadow) withBind(who policy.Conn) policy.Conn {
	if s == nil || slices.Contains(s.binds[who.Listener], who.Bind) {
		return who
	}
	who.Bind = netip.Addr{}
	all := slices.DeleteFunc(slices.Clone(s.binds[who.Listener]), func(from netip.Addr) bool { return !policy.Reaches(from, who.Destination.Addr()) })
	if n := uint64(len(all)); n > 0 {
		who.Bind = all[who.Session%n]
	}
	return who
}

// classesOf returns the classes of a connection, upstream and downstream; nil if the policy does not limit that direction. conf
// is the listener of the connection. If the policy does not have that listener (policy.Classifier.HasListener), both are nil.
func (s *shadow) classesOf(who policy.Conn, conf *policy.Listener) (up, down *shaper.Class) {
	if !s.classifier.HasListener(conf) {
		return nil, nil
	}
	d := s.classifier.Classify(who)
	return s.classes[d.Class], s.classes[d.ReturnClass]
}

// rulesOf returns the rules about the messages of a connection; conf is as in classesOf.
func (s *shadow) rulesOf(who policy.Conn, conf *policy.Listener) policy.MessageRules {
	if !conf.Protocol.HasMessages() || !s.classifier.HasListener(conf) {
		return nil
	}
	return s.classifier.Messages(who)
}

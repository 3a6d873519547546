package conn

import (
	"net/netip"
	"slices"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// shadow is a policy that gets copies of all traffic. Its classes only compute what they would
// do. A nil shadow is no policy. The lock of the routes guards it.
type shadow struct {
	routes
	trial *shaper.Trial
	binds map[string][]netip.Addr // by name of the listener
}

// Shadow sends copies of all traffic, that of open sessions too, to the classes of trial, by
// the rules of p. A nil p ends that.
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
	for _, one := range s.all() {
		one.mirror(s.routing.shadow)
	}
}

// guest returns what stands for a connection of a listener in the trial; nil if no policy is in the shadow.
func (s *shadow) guest(who policy.Conn, conf *policy.Listener, now time.Time) *shaper.Guest {
	if s == nil {
		return nil
	}
	who = s.bind(who)
	up, down := s.classesOf(who, conf)
	return s.trial.Guest(now, who, up, down)
}

// bind returns a connection with the address of ours that it would leave from if the policy in the
// shadow were in force: its own address if bind of its listener has that, and otherwise one that
// bind has. s may be nil.
func (s *shadow) bind(who policy.Conn) policy.Conn {
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

// classesOf returns the classes of a connection, upstream and downstream; nil for none. conf is its listener. If the policy has
// another protocol by that name, its classes and rules are for other clients, and say nothing of the connection.
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

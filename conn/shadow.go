package conn

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// shadow is a policy that gets copies of all traffic. Its classes only compute what they would
// do. A nil shadow is no policy. The lock of the routes guards it.
type shadow struct {
	routes
	trial *shaper.Trial
}

// Shadow sends copies of all traffic, that of open sessions too, to the classes of trial, by
// the rules of p. A nil p ends that.
func (s *Server) Shadow(p *policy.Policy, trial *shaper.Trial) {
	s.routesMu.Lock()
	defer s.routesMu.Unlock()
	s.shadow = nil
	if p != nil {
		s.shadow = &shadow{routes{policy.Compile(p), map[string]*shaper.Class{}}, trial}
		for _, class := range trial.Classes() {
			s.shadow.classes[class.Name()] = class
		}
	}
	for _, one := range s.all() {
		one.mirror(s.shadow)
	}
}

// catchUp lets copies leave that are due. Otherwise, after a long pause, the next copy would
// hold up its session until all of them have left.
func (s *Server) catchUp(now time.Time) {
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	if s.shadow != nil {
		s.shadow.trial.CatchUp(now)
	}
}

// guest returns what stands for a connection in the trial; nil if no policy is in the shadow.
func (s *shadow) guest(who policy.Conn, now time.Time) *shaper.Guest {
	if s == nil {
		return nil
	}
	up, down := s.classesOf(who)
	return s.trial.Guest(now, who, up, down)
}

// classesOf returns the classes of a connection, upstream and downstream; nil for none.
func (s *shadow) classesOf(who policy.Conn) (up, down *shaper.Class) {
	d := s.classifier.Classify(who)
	return s.classes[d.Class], s.classes[d.ReturnClass]
}

package conn

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// shadow is a policy that gets copies of all that comes, and whose classes only
// compute what they would do.
type shadow struct {
	routes
	trial *shaper.Trial
}

// Shadow has copies of what comes to every session, those that are open too, be
// offered to the classes that the rules of p give it, which are those of a trial. A nil
// p ends it.
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

// catchUp has copies leave whose time has come: else the next one, after a long pause,
// would hold up its session while all of them do.
func (s *Server) catchUp(now time.Time) {
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	if s.shadow != nil {
		s.shadow.trial.CatchUp(now)
	}
}

// guest returns what stands for a connection in the trial; nil where no policy is in
// the shadow.
func (s *shadow) guest(who policy.Conn, now time.Time) *shaper.Guest {
	if s == nil {
		return nil
	}
	up, down := s.classesOf(who)
	return s.trial.Guest(now, who, up, down)
}

// classesOf returns the classes of a connection, there and back; nil for none.
func (s *shadow) classesOf(who policy.Conn) (up, down *shaper.Class) {
	d := s.classifier.Classify(who)
	return s.classes[d.Class], s.classes[d.ReturnClass]
}

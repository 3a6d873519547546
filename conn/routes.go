package conn

import (
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// routes is a compiled policy, and the live classes that its names stand for. It never changes.
type routes struct {
	classifier *policy.Classifier
	classes    map[string]*shaper.Class
}

// classify returns the upstream and downstream classes of a connection; down is nil if that
// direction is not limited. conf is its listener as it was when the session began: if the
// policy has lost the listener, the classes are those of conf.
//
// Both are nil if such a class is gone, too, or counts nothing that the connection has. So a
// connection never goes on unlimited because a name has gone or means something else.
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

// limits reports whether a class counts anything that goes in a direction of a protocol. nil
// does: it is no class.
func limits(c *shaper.Class, protocol policy.Protocol, towards stats.Direction) bool {
	if c == nil {
		return true
	}
	return protocol.Counts(c.Rate().Kind(), towards == stats.Downstream)
}

// needsDestination reports whether a rule for the listener asks for the destination. The lock
// of the routes is held.
func (s *Server) needsDestination(listener string) bool {
	return s.routes.classifier.NeedsDestination(listener) || s.shadow != nil && s.shadow.classifier.NeedsDestination(listener)
}

// needsBind reports whether the address of ours tells buckets apart to which the listener can
// lead. The lock of the routes is held.
func (s *Server) needsBind(listener string) bool {
	return s.routes.classifier.NeedsBind(listener) || s.shadow != nil && s.shadow.classifier.NeedsBind(listener)
}

// asksWhere is needsDestination without the lock.
func (s *Server) asksWhere(listener string) bool {
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	return s.needsDestination(listener)
}

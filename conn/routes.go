package conn

import (
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// routes is a policy compiled, and the live classes that its names mean.
type routes struct {
	classifier *policy.Classifier
	classes    map[string]*shaper.Class
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
	return protocol.Counts(c.Rate().Kind(), way == stats.Downstream)
}

// needsDestination reports whether a rule for the listener asks where a connection
// leads to. The lock of the routes is held.
func (s *Server) needsDestination(listener string) bool {
	return s.routes.classifier.NeedsDestination(listener) || s.shadow != nil && s.shadow.classifier.NeedsDestination(listener)
}

// asksWhere is needsDestination for who does not hold the lock.
func (s *Server) asksWhere(listener string) bool {
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	return s.needsDestination(listener)
}

package conn

import (
	"sync"
	"time"

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
// policy has lost the listener, or has another protocol by its name, the classes are those of conf.
//
// Both are nil if a class of conf is gone, too, or if a class counts nothing that the connection
// carries. So a connection never goes on unlimited because a name has gone or means something else.
func (r *routes) classify(c policy.Conn, conf *policy.Listener) (up, down *shaper.Class) {
	var d policy.Decision
	if r.classifier.HasListener(conf) {
		d = r.classifier.Classify(c)
	}
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

// reclassify is classify for a connection that is in the classes up and down. If it stays there, rather than go on
// unlimited, and a class of the same name has replaced one of these, it returns that: the old one may let nothing out.
func (r *routes) reclassify(c policy.Conn, conf *policy.Listener, up, down *shaper.Class) (newUp, newDown *shaper.Class) {
	if newUp, newDown = r.classify(c, conf); newUp != nil {
		return newUp, newDown
	}
	return r.successor(up, conf.Protocol, stats.Upstream), r.successor(down, conf.Protocol, stats.Downstream)
}

// successor returns the class that has the name of a class now, if it counts what a protocol carries; else that class.
func (r *routes) successor(c *shaper.Class, protocol policy.Protocol, towards stats.Direction) *shaper.Class {
	if c == nil {
		return nil
	}
	if next := r.classes[c.Named().Name()]; next != nil && next != c.Named() && limits(next, protocol, towards) {
		return next
	}
	return c
}

// limits reports whether a class counts anything that a protocol carries in a direction, and lets it in: only messages to
// the upstream have the keys by which a class may tell its buckets apart. For nil, which is no class, limits returns true.
func limits(c *shaper.Class, protocol policy.Protocol, towards stats.Direction) bool {
	if c == nil {
		return true
	}
	if c.Messages().HaveBuckets() && (towards == stats.Downstream || !protocol.HasMessages()) {
		return false
	}
	return protocol.Counts(c.Rate().Kind(), towards == stats.Downstream)
}

// routing is the policy that sessions follow, and the one in the shadow.
type routing struct {
	// mu guards the fields below. A session that enters its classes holds it for reading, so that
	// Commit cannot replace the routes meanwhile.
	mu     sync.RWMutex
	routes *routes
	shadow *shadow // nil: no policy is in the shadow; see Server.Shadow
}

// needsDestination reports whether a rule for the listener asks for the destination. The lock
// is held.
func (r *routing) needsDestination(listener string) bool {
	return r.routes.classifier.NeedsDestination(listener) || r.shadow != nil && r.shadow.classifier.NeedsDestination(listener)
}

// needsBind reports whether the listener can lead to a class with a bucket for each address of
// bind. The lock is held.
func (r *routing) needsBind(listener string) bool {
	return r.routes.classifier.NeedsBind(listener) || r.shadow != nil && r.shadow.classifier.NeedsBind(listener)
}

// asksWhere is needsDestination for a caller that does not hold the lock.
func (r *routing) asksWhere(listener string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.needsDestination(listener)
}

// limitsDatagrams reports whether the class of a connection limits datagrams. as is the listener
// for them. No lock is held.
func (r *routing) limitsDatagrams(who policy.Conn, as *policy.Listener) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	up, _ := r.routes.classify(who, as)
	return up != nil
}

// catchUp lets the copies in the shadow leave that are due. Otherwise, after a long pause, the next
// copy would hold up its session until all of them have left.
func (r *routing) catchUp(now time.Time) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.shadow != nil {
		r.shadow.trial.CatchUp(now)
	}
}

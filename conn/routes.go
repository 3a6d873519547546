package conn

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
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

// reclassify moves the session out of classes that are gone.
func (t *tcpSession) reclassify(r *routes, gone map[*shaper.Class]bool) {
	t.drive(func(t *tcpSession) {
		up, down := t.class(), t.down.flow.Class()
		who, now := t.describe(), time.Now()
		if gone[up.Named()] || gone[down.Named()] {
			t.join(r, who, now, gone)
		}
		if t.stage != ended {
			t.relay.reroute(now, r, who, gone)
		}
	})
}

// join moves the session out of classes that are gone, into those of the rules.
func (t *tcpSession) join(r *routes, who policy.Conn, now time.Time, gone map[*shaper.Class]bool) {
	newUp, newDown := r.classify(who, t.conf)
	if newUp == nil { // it stays where it is, rather than go on unlimited
		return
	}
	up, down := t.class(), t.down.flow.Class()
	if gone[up.Named()] {
		newUp = newUp.Join(now, who)
		t.place.slot.Move(newUp)
		t.relay.belong(now, up, newUp)
		if s := t.server; len(s.marks.of()) > 0 {
			t.upstream.end.Set(sock.Mark, int(s.marks.mark(newUp)))
		}
	}
	if gone[down.Named()] && t.stage != ended {
		t.down.join(newDown.Join(now, who))
		down.Quit(now)
	}
}

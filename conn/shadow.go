package conn

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// Shadow has what goes through every session, those that are open too, be offered
// to the classes that the rules of p give it: copies, which leave whatever those
// classes make of them. They are nobody else's, and not driven by a pacer; see
// shaper.Class.Mirror. A nil p ends it.
func (s *Server) Shadow(p *policy.Policy, classes map[string]*shaper.Class) {
	s.routesMu.Lock()
	defer s.routesMu.Unlock()
	s.shadow = nil
	if p != nil {
		s.shadow = &routes{classifier: policy.Compile(p), classes: classes}
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
	if s.shadow == nil {
		return
	}
	for _, c := range s.shadow.classes {
		if c.Parent() == nil {
			c.CatchUp(now)
		}
	}
}

// mirrors returns the classes that get copies of what a connection sends; nil for
// what the rules do not know.
func (r *routes) mirrors(c policy.Conn, now time.Time) (up, down *shaper.Class) {
	if r == nil {
		return nil, nil
	}
	d := r.classifier.Classify(c)
	return r.classes[d.Class].Join(now, c), r.classes[d.ReturnClass].Join(now, c)
}

// mirror puts a session into the shadow of a policy, or out of it.
func (t *tcpSession) mirror(r *routes) {
	t.drive(func(t *tcpSession) {
		now := time.Now()
		up, down := r.mirrors(t.describe(), now)
		t.up.flow.Mirror(now, up)
		t.down.flow.Mirror(now, down)
	})
}

// mirror is that of a tcpSession.
func (t *udpSession) mirror(r *routes) {
	now := time.Now()
	up, down := r.mirrors(t.describe(), now)
	t.up.mirror(now, up)
	t.down.mirror(now, down)
}

// mirror has copies of all datagrams offered to a class, which the way has joined;
// nil for none. It quits that as soon as its session has ended.
func (w *way) mirror(now time.Time, class *shaper.Class) {
	w.shadow.Swap(class).Quit(now)
	if w.session.ended.Load() {
		w.shadow.Swap(nil).Quit(now)
	}
}

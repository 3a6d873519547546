package conn

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
)

// enterClasses moves the session into the classes of its destination. Nothing of it waits in
// the old ones. The locks of the routes and of the session are held.
func (t *tcpSession) enterClasses(now time.Time) {
	s, who := t.server, t.describe()
	up, down := s.routing.routes.classify(who, &t.conf.Listener)
	if t.service.class != nil {
		up = t.service.class
	}
	who.Bind = t.service.choose(now, &t.conf.Listener, who, up, down)
	t.course.origin.set(t.conf.Bind, who.Bind)
	up, down = up.Join(now, who), down.Join(now, who)
	if up != t.up.flow.Class() { // before quit: sessions that wait in a class above the bucket get the permit
		t.permit.Release()
	}
	t.relay.quit(time.Now(), stats.Reset)
	t.up.init(t, stats.Upstream, up)
	t.down.init(t, stats.Downstream, down)
	t.relay = t.streams.begin(t)
	t.copyTo(s.routing.shadow, who, now)
	if t.conf.Protocol.HasMessages() && up != nil {
		t.relay = newMessages(t, s.routing.routes, who)
	}
}

// reclassify implements session.
func (t *tcpSession) reclassify(r *routes, gone map[*shaper.Class]bool) (settle func()) {
	t.do(func(t *tcpSession) {
		up, down := t.up.flow.Class(), t.down.flow.Class()
		who, now := t.describe(), time.Now()
		if t.dialling != nil && !who.Destination.IsValid() && r.classifier.NeedsDestination(t.conf.Name) {
			t.course.located = true // so it enters the classes of its destination before it dials it
		}
		if gone[up.Named()] || gone[down.Named()] {
			t.join(r, who, now, gone)
		}
		if t.stage != ended {
			t.relay.reroute(now, r, who, gone)
		}
		if t.stage == queued {
			t.permit.bound()
		}
	})
	return nil
}

// join moves the session out of the gone classes, into those of the rules. The session's lock is held.
func (t *tcpSession) join(r *routes, who policy.Conn, now time.Time, gone map[*shaper.Class]bool) {
	up, down := t.up.flow.Class(), t.down.flow.Class()
	newUp, newDown := r.reclassify(who, &t.conf.Listener, up, down)
	if gone[up.Named()] && newUp != up {
		newUp = newUp.Join(now, who)
		t.permit.Move(newUp)
		t.relay.belong(now, up, newUp)
		if s := t.server; len(s.marks.of()) > 0 {
			t.upstream.end.Set(sock.Mark, int(s.marks.mark(newUp)))
		}
	}
	if gone[down.Named()] && newDown != down && t.stage != ended {
		t.down.join(newDown.Join(now, who))
		down.Quit(now)
	}
}

// remark implements session.
func (t *tcpSession) remark() {
	t.do(func(t *tcpSession) {
		t.upstream.end.Set(sock.Mark, int(t.server.marks.mark(t.up.flow.Class())))
	})
}

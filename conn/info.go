package conn

import (
	"cmp"
	"slices"
	"time"

	"shaper/stats"
)

// Session is a snapshot of an open session, for people.
type Session struct {
	ID       uint64 `json:"id"`
	Listener string `json:"listener"`
	Protocol string `json:"protocol"`
	Client   string `json:"client"`
	User     string `json:"user,omitempty"` // who has logged in at an entry
	Upstream string `json:"upstream"`       // "" until one is reached
	// UpstreamNumber is the place of that upstream in the listener's list, from 1. Destination is
	// its address; "" if it is built in.
	UpstreamNumber int       `json:"upstream_number,omitempty"`
	Destination    string    `json:"destination,omitempty"`
	Bind           string    `json:"bind,omitempty"`         // the address of bind from which it leaves; "" for none
	ClientTLS      string    `json:"client_tls,omitempty"`   // TLS version with the client, "1.3"; "" for none
	UpstreamTLS    string    `json:"upstream_tls,omitempty"` // the same with the upstream
	Class          string    `json:"class"`
	ReturnClass    string    `json:"return_class,omitempty"`
	Started        time.Time `json:"started"`
	Upward         uint64    `json:"bytes_upstream"`   // sent to the upstream
	Downward       uint64    `json:"bytes_downstream"` // sent to the client
	Waiting        int64     `json:"waiting_bytes"`    // read, but not yet written
}

// info implements session.
func (t *tcpSession) info() Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Session{
		ClientTLS: versionName(t.client.end), UpstreamTLS: versionName(t.upstream.end),
		ID: t.id, Listener: t.conf.Name, Protocol: string(t.conf.Protocol), Started: t.started,
		Client: t.clientName(), User: t.entrance().userName(), Upstream: t.upstreamName(), UpstreamNumber: t.course.number(), Destination: t.course.address(),
		Bind: bindName(t.course.origin.of(t.conf.Bind)), Class: nameOf(t.up.flow.Class()), ReturnClass: nameOf(t.down.flow.Class()),
		Upward: t.up.moved, Downward: t.down.moved,
		Waiting: t.held(),
	}
}

// unwritten implements session.
func (t *tcpSession) unwritten() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held()
}

// held is unwritten for a caller that holds the lock of the session.
func (t *tcpSession) held() int64 {
	return int64(t.up.carrier.held() + t.down.carrier.held())
}

// Sessions returns the open sessions, in the order in which they began.
func (s *Server) Sessions() []Session {
	open := s.sessions.all()
	all := make([]Session, 0, len(open))
	for _, one := range open {
		all = append(all, one.info())
	}
	return all
}

// Busiest returns the sessions in which most waits, and of those the latest: n of them at most. It also returns how many
// are open. It describes no others: with thousands of sessions that is nearly all of the work.
func (s *Server) Busiest(n int) (busiest []Session, open int) {
	type ranked struct {
		session
		unwritten int64
	}
	var all []ranked
	for _, one := range slices.Backward(s.sessions.all()) {
		all = append(all, ranked{one, one.unwritten()})
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(b.unwritten, a.unwritten) })
	for _, one := range all[:min(n, len(all))] {
		busiest = append(busiest, one.info())
	}
	return busiest, len(all)
}

// CloseSession resets an open session, and returns what it was just before. It returns false if there is
// none with this id.
func (s *Server) CloseSession(id uint64) (was Session, closed bool) {
	one, found := s.sessions.find(id)
	if !found {
		return was, false
	}
	was = one.info()
	return was, one.abort(stats.ByOperator)
}

package conn

import (
	"net/netip"
	"sync"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
)

// tcpSession is a connection of a client, and the connection to the upstream that it leads to.
//
// It has no goroutine of its own. Whoever has news for a session drives it as far as it goes
// without waiting: the poller when a socket is ready, the pacer when an item may leave.
type tcpSession struct {
	// Set by newSession, and read by all.
	id      uint64
	server  *Server
	service *service
	poller  *sock.Poller
	conf    *terms // as they were when the client connected
	started time.Time
	at      *localAddr // to which the client connected

	// Set before the session has a class, with mu held, and read by all after that.
	source   netip.AddrPort // of the client, perhaps as a PROXY header tells; invalid for a unix socket
	greeting *greeting      // reads what the client says before its data; nil: it says nothing

	sock.Due // the poller's lock guards it

	// mu guards all that follows. See Server for the order of locks.
	mu     sync.Mutex
	stage  stage
	rests  bool   // of the janitor: its relay need not be tended before something moves
	driver driver // greeting, then dialling, then relay, then over

	client, upstream side
	up, down         direction // upstream and downstream
	relay            relay
	streams          streams   // the relay, unless that is one of messages
	permit           permit    // to be open in its class
	dialling         *dialling // nil: the session has its upstream, or needs none
	course           course
	copies           *copies       // for a policy in the shadow; nil: there is none
	quietFrom        time.Duration // the age of the session when something last moved; see tend
}

// stage is how far a session has come.
type stage uint8

const (
	arriving   stage = iota // it greets the client, does the TLS handshake, or finds the destination for the rules
	queued                  // it waits for a permit (max_connections)
	resolving               // it waits for the address of an upstream
	opening                 // it waits for its class, which may count connections
	connecting              // it dials
	relaying                // it has its upstream
	cutting                 // it has failed, and waits until what it has written arrives; see cutOff
	ended
)

// A driver decides what a session does next: first the greeting, then the dial, then the relay,
// and in the end over. Its methods do not wait. The lock of the session is held.
type driver interface {
	// drive does what there is to do, for at most one turn.
	drive()
	// changed drives the session after an event on a side.
	changed(s *side)
	// granted drives the session after the class has let go what a direction waited for.
	granted(d *direction, now time.Time)
}

// over is the driver of a session that is over.
type over struct{}

func (over) drive()                              {}
func (over) changed(*side)                       {}
func (over) granted(d *direction, now time.Time) { d.flow.Left(now) }

// A part of a session takes itself down when the session ends. The lock of the session is held.
type part interface{ finish(stats.Result) }

// A relay moves what the two peers of a session send each other. There are two kinds: streams
// of bytes, and messages. The lock of the session guards it.
type relay interface {
	driver
	part
	// reach prepares for the upstream that the session has reached.
	reach(upstream string)
	// flush writes what may leave and is held back to leave together with more.
	flush()
	// tend gives up answers that are overdue. waits reports whether something waits for its class, and
	// would wait even if the provider answered. rests reports whether time alone changes nothing, so
	// that nobody needs to call tend again before bytes move.
	tend(now time.Time) (waits, rests bool)
	// age ends a session that is older than max_session_age, now or at the next boundary between
	// messages. quiet says that nothing has moved for a while.
	age(now time.Time, quiet bool)
	// drain ends a session while the server stops, at the next boundary between messages if the
	// protocol has one. quiet is that of age.
	drain(now time.Time, quiet bool)
	// belong moves the session from its upstream class to another one.
	belong(now time.Time, from, to *shaper.Class)
	// reroute follows a reload. The classes in gone are those that the policy has no more, and in which somebody was.
	reroute(now time.Time, r *routes, who policy.Conn, gone map[*shaper.Class]bool)
	// copyTo sends copies of messages to a policy in the shadow; nil ends that.
	copyTo(c *copies)
	// quit drops what waits, and quits all classes.
	quit(now time.Time, reason stats.Reason)
}

// describe returns what rules match. The session's lock is held.
func (t *tcpSession) describe() policy.Conn {
	who := policy.Conn{Listener: t.conf.Name, Source: t.source, Port: t.at.addr.Port(), Destination: t.course.destination, Bind: t.course.origin.of(t.conf.Bind), Session: t.id}
	if e := t.entrance(); e != nil {
		who.User, who.ServerName = e.user, e.to.Name
		if t.conf.Mode == policy.Transparent { // the client has not connected to our port
			who.Port = t.greeting.intended.Port()
		}
	}
	return who
}

// upstreamName returns the upstream, as the policy has it or the client has chosen it; "" until
// the session has reached it.
func (t *tcpSession) upstreamName() string {
	if !t.course.reached {
		return ""
	}
	return t.aim()
}

// entrance returns the entrance of the session; nil if its listener is no entry.
func (t *tcpSession) entrance() *entrance {
	if t.greeting == nil || !t.conf.Mode.IsEntry() {
		return nil
	}
	return &t.greeting.entrance
}

// aim returns the upstream that the session tries, or what its client has chosen.
func (t *tcpSession) aim() string {
	if e := t.entrance(); e != nil {
		return e.to.String()
	}
	return t.course.walk.Upstream()
}

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

// tcpSession is one client connection and the upstream connection it leads to.
//
// Nobody waits for it: whoever has news for a session drives it on as far as it
// goes without waiting, be it the poller, whose sockets are ready, or the pacer,
// whose time has come.
type tcpSession struct {
	// What never changes.
	id      uint64
	server  *Server
	service *service
	poller  *sock.Poller
	conf    *policy.Listener // as it was when the client connected
	secure  security         // at that time
	started time.Time
	source  netip.AddrPort
	port    uint16 // that the client connected to

	sock.Due // of the poller

	// mu guards all that follows. The lock of the routes comes before it; those of the
	// server, of pollers, of ends in memory and of classes come after it.
	mu     sync.Mutex
	stage  stage
	driver driver

	client, upstream side
	up, down         direction // towards the upstream, and back
	relay            relay     // what goes on between the two
	place            place     // in the class
	dialling         dialling
	target                   // of the dial
	copies           *copies // of what goes through the session, for a policy in the shadow; nil: there is none
	quietSince       time.Time
}

// target is where a session leads to.
type target struct {
	// destination is what rules match: the upstream's address, once there is one; before,
	// where the first of the list is, if a rule asked.
	destination netip.AddrPort
	located     bool   // a rule asked, and the classes are those of destination
	name        string // of the upstream; "" until it is reached
	number      int    // of that among those of the listener, from 1; 0 until then
}

// stage is how far a session has come.
type stage uint8

const (
	arriving   stage = iota // a handshake with its client, or rules that ask for the destination, come first
	queued                  // it waits for a slot, one of max_connections
	resolving               // it waits for the address of an upstream
	opening                 // it waits for its class, which may count connections
	connecting              // it dials
	relaying
	cutting // its end waits for what came before it to arrive; see cutOff
	ended
)

// A driver decides what a session does next: first the dial, then the relay, and in the
// end nobody. The lock of the session is held.
type driver interface {
	// drive does what can be done without waiting, for the length of a turn.
	drive()
	// changed goes on after something has happened to a side.
	changed(s *side)
	// granted goes on after the class has let go what a direction waited for.
	granted(d *direction, now time.Time)
}

// over drives a session that has nothing more to do.
type over struct{}

func (over) drive()                              {}
func (over) changed(*side)                       {}
func (over) granted(d *direction, now time.Time) { d.flow.Left(now) }

// A part of a session is finished with it. The lock of the session is held.
type part interface{ finish(stats.Result) }

// relay is what goes on between the ends of a session. There are two kinds: streams of
// bytes, and messages. The lock of the session guards it.
type relay interface {
	driver
	part
	// reach says that the session has its upstream.
	reach(upstream string)
	// flush writes what has been passed on and is held for more.
	flush()
	// tend forgets what has been under way for too long. It reports whether something waits
	// for its class that no silence of the provider keeps waiting.
	tend(now time.Time) (waits bool)
	// belong moves the session from its class towards the upstream to another one.
	belong(now time.Time, from, to *shaper.Class)
	// reroute follows a reload, after which classes are gone.
	reroute(now time.Time, r *routes, who policy.Conn, gone map[*shaper.Class]bool)
	// copyTo lets a policy in the shadow get copies of messages; nil: none does.
	copyTo(c *copies)
	// quit gives up what waits, and leaves the classes that the directions are not in.
	quit(now time.Time, reason stats.Reason)
}

// describe returns what the rules match.
func (t *tcpSession) describe() policy.Conn {
	return policy.Conn{Listener: t.conf.Name, Source: t.source, Port: t.port, Destination: t.destination, Session: t.id}
}

// class returns the class of the session, towards the upstream; nil for none.
func (t *tcpSession) class() *shaper.Class { return t.up.flow.Class() }

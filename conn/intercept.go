package conn

import (
	"errors"

	"shaper/entry"
	"shaper/sock"
)

// A client of a transparent listener says nothing: nftables has led its connection to us, and it
// wants to go where it has connected to.

var errNotIntercepted = errors.New("it has connected to the listener itself; nftables has to lead connections there (shaper nft apply)")

// follow leads the session to where its client has connected to, and then calls then without the
// session's lock. The session's lock is held.
func (e *entrance) follow(then func()) {
	t := e.session
	asked := sock.Intended(t.client.end)
	t.greeting.asked, t.greeting.then = asked, then
	if t.server.isOwn("tcp", asked) {
		e.refuse(errNotIntercepted)
		return
	}
	e.lead(entry.Step{To: entry.Destination{Addr: asked.Addr(), Port: asked.Port()}})
}

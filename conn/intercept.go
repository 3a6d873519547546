package conn

import (
	"errors"

	"shaper/entry"
	"shaper/sock"
)

// A client of a transparent listener says nothing: nftables has led its connection to us, and it
// wants to go where it has connected to.

var errNotIntercepted = errors.New("it has connected to the listener itself; nftables has to lead connections there (shaper nft apply)")

// follow leads the session to where its client has connected to, and then goes on with then, as
// greeting.read does. The session's lock is held.
func (e *entrance) follow(then func()) {
	t := e.session
	to := sock.Intended(t.client.end)
	t.greeting.intended, t.greeting.then = to, then
	if t.server.isOwn("tcp", to) {
		e.refuse(errNotIntercepted)
		return
	}
	e.lead(entry.Step{To: destinationAt(to)})
}

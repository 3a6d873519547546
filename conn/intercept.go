package conn

import (
	"errors"

	"shaper/entry"
	"shaper/sock"
)

// A client of a transparent listener does not say where it wants to go. nftables has led its
// connection to us, and the session leads to the address that the client has connected to.

var errNotIntercepted = errors.New("it has connected to the listener itself; nftables has to lead connections there (shaper nft apply)")

// follow leads the session to the address that its client has connected to, unless the policy
// denies that. Then it goes on with then, as greeting.read does. The session's lock is held.
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

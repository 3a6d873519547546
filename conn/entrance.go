package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"shaper/buffer"
	"shaper/entry"
	"shaper/frame"
	"shaper/policy"
	"shaper/stats"
	"shaper/upstream"
)

// entrance asks the client of an entry who it is and where it wants to go, and answers it. If the
// session ends before that answer, the client is told why. entrance is nil if the listener is no
// entry: the session then leads to the upstreams of the listener, and connected, finish, userName,
// known, upstream, allowed and allows accept that. The lock of the session guards it.
type entrance struct {
	session  *tcpSession       // never changes
	protocol entry.Entry       // nil: it has not begun to speak, or the client has its answer
	to       entry.Destination // where the client wants to go
	user     string            // who has logged in; "": nobody
	users    *entry.Users      // by which the user has logged in
	forget   func()            // ends a comparison of the password that has not begun; nil: there was none

	forwarded frame.Link // of the one request that the client has asked by a URL; nil: there is none
}

var (
	errDenied   = errors.New("the policy does not allow the destination")
	errPassword = errors.New("the user or the password is wrong, or there were too many tries")
)

// newProtocol returns the protocol that clients of the listener's mode speak.
func (e *entrance) newProtocol() entry.Entry {
	t := e.session
	l := &t.conf.Listener
	users := l.Users != ""
	switch l.Mode {
	case policy.SOCKS5:
		return &entry.SOCKS5{Users: users, NoStreams: l.Protocol == policy.UDP, Datagrams: t.conf.relayed != nil}
	case policy.SNI:
		return &entry.SNI{Port: t.told().Destination.Port()}
	}
	return &entry.Connect{Users: users, Forward: l.Protocol == policy.TCP || l.Protocol == policy.HTTP}
}

// read lets the client say where it wants to go, and then goes on with then, as greeting.read does.
// The session's lock is held.
func (e *entrance) read(then func()) {
	t := e.session
	e.protocol = e.newProtocol()
	t.greeting.read(e.feed, e.refuse, then, time.Duration(t.conf.ConnectTimeout))
}

// feed is the parser of an entry: it gives the protocol what the client has said.
func (e *entrance) feed(said []byte) (used int, do func(), err error) {
	used, step, err := e.protocol.Feed(said)
	if step.IsZero() {
		return used, nil, err
	}
	return used, func() { e.act(step) }, err
}

// act does what a step of the protocol says.
func (e *entrance) act(s entry.Step) {
	g := e.session.greeting
	switch {
	case !e.tell(s.Reply):
	case s.Login:
		g.parse = nil // until the password is compared
		e.login(s)
	case s.Relay:
		e.relay(s.From)
	case s.To != entry.Destination{}:
		e.lead(s)
	}
}

// lead goes on with the session to its destination, unless the policy never allows that. It is the
// present policy that decides: a reload may have removed the listener or the user.
func (e *entrance) lead(s entry.Step) {
	t, to := e.session, s.To
	e.to = to
	if now := t.service.terms.Load(); !now.admits(e.user, e.users) || !mayLead(&now.Listener, to) {
		t.dialling.search.failures = failures{errDenied}
		t.warn(denied, "err", fmt.Errorf("%v: %w", to, errDenied))
		t.finish(stats.Denied)
		return
	}
	if s.Head == nil || e.forward(s.Head) {
		t.greeting.done()
	}
}

// forward makes the session read the request with this head, and nothing else of the client. If it
// cannot, it ends the session and returns false.
func (e *entrance) forward(head []byte) bool {
	t := e.session
	one, err := oneRequest(&t.client, head)
	if err != nil {
		if e.tell(e.protocol.Refused(entry.Malformed)) {
			e.refuse(err)
		}
		return false
	}
	t.client.end, t.client.Readable, e.forwarded = one, true, one.link
	return true
}

// relay makes a relay for the datagrams that the client will send from an address, and answers it.
func (e *entrance) relay(from netip.AddrPort) {
	t := e.session
	t.greeting.parse = nil // the client waits for its answer
	at := t.client.end.Local().Addr()
	who := t.describe()
	t.server.wg.Go(func() { // the lock of the routes comes before the session's
		defer t.server.rescue(t)
		a, err := associate(t, who, at, from)
		taken := false
		t.do(func(*tcpSession) {
			taken = true
			e.relayMade(a, err)
		})
		if !taken && err == nil {
			a.close(stats.Aborted)
		}
	})
}

// relayMade goes on after the relay was made, or could not be made: then err is not nil.
func (e *entrance) relayMade(a *association, err error) {
	t := e.session
	if err != nil {
		refusal := entry.Failed
		if err == errUnlimited {
			refusal = entry.NoCommand
		}
		if e.tell(e.protocol.Refused(refusal)) {
			e.refuse(err)
		}
		return
	}
	t.greeting.stop()
	answer := e.protocol.Connected(a.local())
	e.protocol = nil
	t.stage, t.relay, t.driver, t.dialling, a.users = relaying, a, a, nil, e.users
	if a.serve(); e.tell(answer) {
		t.client.keepAlive(time.Duration(t.conf.IdleTimeout)) // while datagrams come for it, it is not idle
		a.drive()
	}
}

// login compares the password with the present file of users, or with the file before if a reload has taken the
// file away. It does so in a goroutine of its own, since the comparison takes long. That goroutine waits for
// other logins, until the session ends.
func (e *entrance) login(s entry.Step) {
	t := e.session
	e.users = cmp.Or(t.service.terms.Load().secure.users, t.conf.secure.users)
	users := e.users
	ctx, cancel := context.WithCancel(t.server.ctx)
	e.forget = cancel
	t.server.wg.Go(func() {
		defer t.server.rescue(t)
		defer cancel()
		ok := users.Check(ctx, s.User, s.Password, time.Now)
		t.do(func(*tcpSession) { e.loggedIn(s, ok) })
	})
}

// loggedIn goes on after the password was compared.
func (e *entrance) loggedIn(s entry.Step, ok bool) {
	g := e.session.greeting
	switch {
	case !e.tell(e.protocol.LoggedIn(ok)):
	case !ok:
		e.refuse(errPassword)
	case s.To != entry.Destination{}:
		e.user = s.User
		e.lead(s)
	default:
		e.user = s.User
		g.parse = e.feed
		g.drive()
	}
}

// refuse ends the session of a client that has its answer already, or gets none.
func (e *entrance) refuse(err error) {
	t := e.session
	e.protocol = nil
	t.warn(denied, "err", err)
	e.hangUp()
	t.finish(stats.Denied)
}

// tell writes an answer. There is room for it, since little was written before. If it fails, it
// ends the session and returns false.
func (e *entrance) tell(answer []byte) bool {
	t := e.session
	if err := writeAll(t.client.end, answer); err != nil {
		e.protocol = nil
		t.finish(resultOf(err))
		return false
	}
	return true
}

// connected tells the client that its destination is reached. It returns false if the session has
// ended. Of the upstream, the session then reads one answer if it has one request.
func (e *entrance) connected() bool {
	if e == nil || e.protocol == nil {
		return true
	}
	if up := &e.session.upstream; e.forwarded != nil {
		up.end = oneAnswer(up, e.forwarded)
	}
	answer := e.protocol.Connected(e.session.upstream.end.Local())
	e.protocol = nil
	return e.tell(answer)
}

// finish implements part. A client without an answer gets one: why the session ends.
func (e *entrance) finish(result stats.Result) {
	if e == nil {
		return
	}
	if e.forget != nil {
		e.forget()
	}
	if e.protocol == nil {
		return
	}
	t := e.session
	if (e.to != entry.Destination{}) && result != stats.Aborted && result != stats.ResetByPeer {
		writeAll(t.client.end, e.protocol.Refused(t.dialling.search.failures.refusal()))
		e.hangUp()
	}
	e.protocol = nil
}

// hangUp closes the connection with the client, which still gets its answer. What it has sent is
// read first: otherwise the kernel would send a reset, which could overtake the answer.
func (e *entrance) hangUp() {
	t := e.session
	rest := buffer.Get(entry.MaxEntry)
	defer rest.Put()
	for range 8 { // and not for ever
		if n, err := t.client.end.Read(rest.Bytes); n <= 0 && err != unix.EINTR {
			break
		}
	}
	t.client.close()
}

// userName returns who has logged in; "" for nobody.
func (e *entrance) userName() string {
	if e == nil {
		return ""
	}
	return e.user
}

// known returns the addresses of the upstream at which a walk stands or, at an entry, the one that
// the client has chosen. known is false if a name has to be looked up. What a client has chosen is
// never built in, nor a unix socket.
func (e *entrance) known(at *upstream.Walk) (addrs []upstream.Address, known bool) {
	if e == nil {
		return at.Known()
	}
	return seen(e.session.server.names, e.to)
}

// upstream returns what the session has to look up: where the walk stands, if it is at no entry.
func (e *entrance) upstream(at *upstream.Walk) string {
	if e == nil {
		return at.Upstream()
	}
	return e.to.Upstream()
}

// allowed returns those of the addresses that the session may dial: all, if it is at no entry.
func (e *entrance) allowed(addrs []upstream.Address) []upstream.Address {
	if e == nil {
		return addrs
	}
	return allowed(&e.session.service.terms.Load().Listener, e.to, addrs)
}

// allows reports whether the session may dial an address now.
func (e *entrance) allows(to netip.AddrPort) bool {
	return e == nil || e.session.service.terms.Load().Allows(e.to.Name, to)
}

package conn

import (
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"shaper/buffer"
	"shaper/entry"
	"shaper/sock"
	"shaper/stats"
	"shaper/upstream"
)

// greeting reads what the client says before the session begins: a PROXY header, and, at an
// entry, where it wants to go. It drives the session until then. It peeks, and takes out of the
// stream only what it has understood, so that what follows stays for TLS or for the relay. The
// lock of the session guards it.
type greeting struct {
	session  *tcpSession    // never changes
	peer     netip.AddrPort // at the other end of the connection; never changes
	intended netip.AddrPort // to which the client connected, as a PROXY header or nftables tells; invalid: neither does
	entrance entrance

	parse  parser      // understands what the client says; nil: it says no more for now
	failed func(error) // ends the session, since the client says something else
	then   func()      // goes on with the session, without its lock; nil once the client has said all
	next   func()      // what then was, for whoever holds the session's lock to call after unlocking; see do
	late   alarm       // ends the session if the greeting takes too long
}

func newGreeting(t *tcpSession) *greeting {
	return &greeting{session: t, peer: t.source, entrance: entrance{session: t}}
}

// A parser looks at what the client has said. It returns how many bytes it has understood; 0 asks
// for more. do, if it is not nil, is called once they are taken out of the stream. The session's
// lock is held in both. After an error, the greeting fails.
type parser func(said []byte) (used int, do func(), err error)

// read lets parse read what the client says, until a step of parse calls done. Whoever drives the
// session then calls then, without the session's lock. If parse fails, or takes longer than patience,
// read calls failed, which ends the session. The session's lock is held.
func (g *greeting) read(parse parser, failed func(error), then func(), patience time.Duration) {
	t := g.session
	g.parse, g.failed, g.then, t.driver = parse, failed, then, g
	g.late.after(patience, t, func() { g.failed(upstream.ErrTimeout) })
	if t.watchClient() {
		g.drive()
	}
}

// watchClient lets the poller watch the client, unless it does so already. The poller reports what the
// client has said before. If that fails, watchClient ends the session and returns false. The session's
// lock is held.
func (t *tcpSession) watchClient() bool {
	if t.client.key != 0 {
		return true
	}
	if err := t.client.watch(); err != nil {
		t.server.log.Error("cannot watch the connection of a client; the session ends", "listener", t.conf.Name, "err", err)
		t.finish(stats.DialFailed)
		return false
	}
	return true
}

// drive implements driver.
func (g *greeting) drive() {
	t := g.session
	peeked := buffer.Get(entry.MaxEntry)
	defer peeked.Put()
	for g.parse != nil && t.client.Readable {
		n, err := peek(t.client.end, peeked.Bytes)
		if err == unix.EAGAIN {
			t.client.Readable = false
			return
		}
		if err != nil {
			t.finish(resultOf(err))
			return
		}
		if !g.understand(peeked.Bytes[:n]) {
			return
		}
	}
}

// understand takes what the client has said one step further. It returns false if the client has
// to say more first, or the session has ended.
func (g *greeting) understand(said []byte) (goesOn bool) {
	t := g.session
	used, do, err := g.parse(said)
	if !g.take(said[:used]) {
		return false
	}
	if used > 0 && used == len(said) && len(said) < entry.MaxEntry { // nothing more is there, but perhaps the end
		t.client.Readable = t.client.Ends || t.client.Urgent
	}
	if do != nil {
		do()
	}
	switch {
	case t.stage == ended:
	case err != nil:
		g.failed(err)
	case g.lost():
		t.finish(stats.Aborted)
	case g.parse == nil: // it has said all, for now
	case used > 0:
		return true
	case len(said) == 0:
		t.finish(stats.Aborted) // it has gone without a byte, as health checks do
	case t.client.Broken:
		t.finish(stats.ResetByPeer)
	case t.client.Ends:
		g.failed(io.ErrUnexpectedEOF)
	}
	return false
}

// peek is Peek that nothing interrupts.
func peek(end sock.End, p []byte) (n int, err error) {
	for {
		if n, err = end.Peek(p); err != unix.EINTR {
			return n, err
		}
	}
}

// take reads bytes that peek has returned, so that the stream no longer has them. If the read fails,
// take ends the session and returns false.
func (g *greeting) take(peeked []byte) bool {
	t := g.session
	for len(peeked) > 0 {
		n, err := t.client.end.Read(peeked)
		if err != nil && err != unix.EINTR {
			t.finish(resultOf(err))
			return false
		}
		peeked = peeked[max(n, 0):]
	}
	return true
}

// done ends the greeting. To go on, the session takes locks that come before its own, so it goes on
// when its own lock is free. The lock of the session is held.
func (g *greeting) done() {
	g.next, g.then = g.then, nil
	g.stop()
	g.session.driver = g.session.dialling
}

// changed implements driver.
func (g *greeting) changed(s *side) {
	if g.lost() {
		g.session.finish(stats.Aborted)
	} else if s.Readable {
		g.drive()
	}
}

// lost reports whether the client has gone while nobody reads, since its password is compared.
func (g *greeting) lost() bool { return g.parse == nil && g.then != nil && g.session.client.Broken }

// granted implements driver. Nothing waits for a class yet.
func (g *greeting) granted(by *direction, now time.Time) { by.flow.Left(now) }

func (g *greeting) stop() {
	g.parse = nil
	g.late.stop()
}

// finish implements part.
func (g *greeting) finish(stats.Result) {
	if g != nil {
		g.stop()
	}
}

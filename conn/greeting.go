package conn

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"shaper/buffer"
	"shaper/entry"
	"shaper/stats"
	"shaper/upstream"
)

// greeting reads the PROXY header with which a connection of accept_proxy begins. It drives the
// session until then. It only peeks until the header is there, so that what follows stays for
// TLS or for the relay. The lock of the session guards it.
type greeting struct {
	session *tcpSession    // never changes
	peer    netip.AddrPort // at the other end of the connection; never changes
	asked   netip.AddrPort // to which the client connected, as the header tells; invalid: it does not
	then    func()         // goes on with the session, without its lock; nil: it has gone on
	timer   *time.Timer    // ends the session if the header takes too long
}

// headerPatience is how long a PROXY header may take.
const headerPatience = 5 * time.Second

// tellsAddress reports whether the connection begins with a PROXY header. From all other
// networks, a header is only bytes.
func (t *tcpSession) tellsAddress() bool {
	peer := t.source.Addr().WithZone("")
	return slices.ContainsFunc(t.conf.AcceptProxy, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// begin reads the header, and then calls then without the session's lock.
func (g *greeting) begin(then func()) {
	t := g.session
	g.then, t.driver = then, g
	g.timer = time.AfterFunc(headerPatience, func() {
		t.do(func(t *tcpSession) {
			if g.then != nil {
				g.failed(upstream.ErrTimeout)
			}
		})
	})
	if t.watchClient() {
		g.drive()
	}
}

// watchClient lets the poller watch the client, unless it does so already. If that fails,
// watchClient ends the session and returns false. The session's lock is held.
func (t *tcpSession) watchClient() bool {
	if t.client.key != 0 {
		return true
	}
	if err := t.client.watch(); err != nil {
		t.server.log.Error("cannot watch a connection", "listener", t.conf.Name, "err", err)
		t.finish(stats.DialFailed)
		return false
	}
	return true
}

// drive implements driver.
func (g *greeting) drive() {
	t := g.session
	peeked := buffer.Get(entry.MaxProxy)
	defer peeked.Put()
	n, err := t.client.end.Peek(peeked.Bytes)
	for err == unix.EINTR {
		n, err = t.client.end.Peek(peeked.Bytes)
	}
	switch {
	case err == unix.EAGAIN:
		return
	case err != nil:
		t.finish(resultOf(err))
		return
	}
	told, size, err := entry.ParseProxy(peeked.Bytes[:n])
	switch {
	case err == nil && size == 0 && n == 0:
		g.hungUp()
	case err == nil && size == 0 && t.client.Broken:
		t.finish(stats.ResetByPeer)
	case err == nil && size == 0 && t.client.Ends:
		g.failed(io.ErrUnexpectedEOF)
	case err != nil:
		g.failed(err)
	case size > 0:
		g.done(told, peeked.Bytes[:size])
	}
}

// hungUp ends the session of a client that has left without a byte, as health checks do.
func (g *greeting) hungUp() { g.session.finish(stats.Aborted) }

// done takes the header out of the stream, and goes on with the session.
func (g *greeting) done(told entry.Proxy, header []byte) {
	t := g.session
	for len(header) > 0 { // all of it is there
		n, err := t.client.end.Read(header)
		if err != nil && err != unix.EINTR {
			t.finish(resultOf(err))
			return
		}
		header = header[max(n, 0):]
	}
	if told.Source.IsValid() {
		t.source, g.asked = told.Source, told.Destination
	}
	then := g.then
	g.stop()
	t.driver = &t.dialling
	t.server.wg.Go(then) // it takes locks that come before the session's
}

// failed ends the session, since its connection begins with something else.
func (g *greeting) failed(err error) {
	t := g.session
	t.warn(badHeader, "err", err)
	t.finish(stats.NoHeader)
}

// changed implements driver.
func (g *greeting) changed(s *side) {
	if s.Readable {
		g.drive()
	}
}

// granted implements driver. Nothing waits for a class yet.
func (g *greeting) granted(by *direction, now time.Time) { by.flow.Left(now) }

// finish implements part.
func (g *greeting) finish(stats.Result) {
	if g != nil {
		g.stop()
	}
}

func (g *greeting) stop() {
	g.then = nil
	if g.timer != nil {
		g.timer.Stop()
	}
}

var errIntroduced = errors.New("there is no room for the PROXY header")

// introduce tells the upstream the address of the client, if the listener says so. The
// connection has room for that, since nothing was written before. The session's lock is held.
func (t *tcpSession) introduce() error {
	if t.conf.SendProxy == "" {
		return nil
	}
	header := t.conf.header(t.told())
	n, err := t.upstream.end.Write(header)
	for err == unix.EINTR {
		n, err = t.upstream.end.Write(header)
	}
	if err == nil && n < len(header) {
		return errIntroduced
	}
	return err
}

// told returns what a PROXY header tells of the client: the address that rules see, and the one
// that it has connected to.
func (t *tcpSession) told() entry.Proxy {
	if t.greeting != nil && t.greeting.asked.IsValid() {
		return entry.Proxy{Source: t.source, Destination: t.greeting.asked}
	}
	return entry.Proxy{Source: t.source, Destination: t.client.end.Local()}
}

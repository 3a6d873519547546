package conn

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// leaveGrace is how long a session waits and dials on after the client has sent a
// FIN and nothing else. One that only wants to listen does so too.
const leaveGrace = 500 * time.Millisecond

// dialling is how a session reaches the first upstream of its listener that can
// be reached, and of a name the first address.
//
// A name is resolved before the connection asks its class. A class that counts connections
// lets nothing else go until the last one has left, and a name may take long. So the
// order is: slot, name, class, connect.
type dialling struct {
	session *tcpSession // never changes

	next      int              // upstream of the list
	addrs     []netip.AddrPort // of the present upstream, still to be tried
	by        time.Time        // when the present upstream is given up
	patience  time.Duration    // what that had of connect_timeout when it was resolved
	until     time.Time        // when a want of descriptors is a reason to give up; zero: it has not dialled yet
	unsettled bool             // the class has let the connection go, and has not been told that it left
	found     func()           // begins a session whose first address is known
	errs      []error
	timer     *time.Timer        // gives up the present address, or tries it again
	attemptBy time.Time          // when it does the first
	grace     *time.Timer        // gives up the client; nil: it has not left
	resolve   context.CancelFunc // nil: no name is being resolved
}

// drive implements driver.
func (d *dialling) drive() {
	switch t := d.session; t.stage {
	case queued:
		if t.place.slot.Held() {
			t.place.taken()
			d.tryAddress()
		}
	case opening:
		if !t.up.waiting {
			d.begin()
		}
	}
}

// changed implements driver.
func (d *dialling) changed(s *side) {
	if s == &d.session.client {
		d.clientLeaves()
	} else if s.Writable {
		d.dialled()
	}
}

// granted implements driver: the class lets the connection go.
func (d *dialling) granted(way *direction, now time.Time) {
	if d.session.stage != opening {
		way.flow.Left(now)
		return
	}
	d.begin()
}

// finish implements part.
func (d *dialling) finish(stats.Result) {
	d.departed() // else it will not
	d.stop()
}

// await waits for a slot of the class, and goes on to an address.
func (d *dialling) await() {
	if d.session.place.acquire() {
		d.tryAddress()
	}
}

// stop ends the dial, reached or not.
func (d *dialling) stop() {
	for _, timer := range []*time.Timer{d.timer, d.grace} {
		if timer != nil {
			timer.Stop()
		}
	}
	if d.resolve != nil {
		d.resolve()
	}
	*d = dialling{session: d.session}
}

// forget lets the upstream that was found be looked up once more, after a wait: its
// addresses may be old by then.
func (d *dialling) forget() {
	if len(d.addrs) > 0 {
		d.next, d.addrs = d.next-1, nil
	}
}

// tryUpstream goes on with the next upstream of the list; the session ends if there is no
// more.
func (d *dialling) tryUpstream() {
	t := d.session
	if d.next == len(t.conf.Upstream) {
		t.warn(unreachable, "err", errors.Join(d.errs...))
		t.finish(unreached(d.errs))
		return
	}
	d.next++
	d.by = time.Now().Add(time.Duration(t.conf.ConnectTimeout))
	if addrs, known := literally(d.upstreamName()); known {
		d.tryAddresses(addrs)
		return
	}
	d.departed() // a class that has let the connection go does not wait for a name
	d.lookUp(d.upstreamName())
}

// upstreamName returns the upstream that is being tried.
func (d *dialling) upstreamName() string { return d.session.conf.Upstream[d.next-1] }

// resolve looks up the addresses of a name, each time, and goes on with them.
func (d *dialling) lookUp(upstream string) {
	t := d.session
	ctx, cancel := context.WithDeadline(t.server.ctx, d.by)
	d.resolve = cancel
	t.server.wg.Go(func() {
		defer cancel()
		defer t.server.rescue(t)
		addrs, err := t.server.lookup(ctx, upstream)
		t.do(func(t *tcpSession) {
			d.resolve = nil
			if err != nil {
				d.failed(upstream, upstream, &lookupError{err})
				d.tryUpstream()
				return
			}
			d.tryAddresses(addrs)
		})
	})
}

// tryAddresses goes on with the addresses of an upstream that can be reached. The one that
// the session was classified by comes first: a name may have them in another order
// each time.
func (d *dialling) tryAddresses(addrs []netip.AddrPort) {
	t := d.session
	d.patience = time.Until(d.by)
	d.addrs = reachable(addrs, t.conf.Bind)
	if len(d.addrs) == 0 {
		d.failed(d.upstreamName(), d.upstreamName(), errFamily)
	}
	if i := slices.Index(d.addrs, t.destination); i > 0 {
		d.addrs[0], d.addrs[i] = d.addrs[i], d.addrs[0]
	}
	d.tryAddress()
}

// tryAddress does what comes next with the next address, or goes on with the next
// upstream.
func (d *dialling) tryAddress() {
	t := d.session
	switch {
	case len(d.addrs) == 0:
		d.tryUpstream()
	case t.stage == arriving:
		t.destination, t.located = d.addrs[0], true
		t.server.wg.Go(d.found) // it needs locks that come before the session's
	case d.isElsewhere(d.addrs[0]):
		t.server.wg.Go(d.follow) // likewise
	case t.stage == resolving:
		d.askClass()
	default:
		d.attempt()
	}
}

// askClass asks the class whether the connection, which has a slot and an address, may go.
func (d *dialling) askClass() {
	t := d.session
	t.stage = opening
	t.up.ask(time.Now(), shaper.Cost{Connections: 1})
	d.drive()
}

// dial connects to the address that was found: the class has let the connection go.
func (d *dialling) begin() {
	t := d.session
	t.up.count(t.up.flow.Class(), shaper.Cost{Connections: 1})
	t.stage, d.unsettled = connecting, true
	if d.until.IsZero() { // for the first time
		t.service.stats.Sent[stats.Upstream].Connections.Add(1)
	}
	d.by = time.Now().Add(d.patience)
	d.until = d.by
	if d.clientLeaves(); t.stage != ended {
		d.tryAddress()
	}
}

// attempt begins to connect to the next address.
func (d *dialling) attempt() {
	t := d.session
	to := d.addrs[0]
	t.destination = to
	err := d.connect(to)
	if lacksDescriptors(err) && time.Now().Before(d.until) {
		d.attemptLater()
		return
	}
	patience := time.Until(d.by) / time.Duration(len(d.addrs))
	d.addrs = d.addrs[1:]
	switch {
	case err != nil:
		d.attemptFailed(err)
	case to.IsValid():
		d.awaitAnswer(patience)
	default: // what is built in is there
		d.established()
	}
}

// dialPause is how long a session waits for a descriptor that it lacks, each time.
const dialPause = 20 * time.Millisecond

// attemptLater tries an address again, for which the process had no descriptor. Clients
// that wait for a slot may have them all; those of the next session that ends are for
// this one rather than for another that waits.
func (d *dialling) attemptLater() {
	t := d.session
	t.upstream.close()
	d.timer = time.AfterFunc(dialPause, func() {
		t.do(func(t *tcpSession) {
			if t.stage == connecting {
				d.by = time.Now().Add(d.patience)
				d.tryAddress()
			}
		})
	})
}

// connect begins to connect. The connection leaves its class here.
func (d *dialling) connect(to netip.AddrPort) error {
	t := d.session
	if !to.IsValid() {
		return t.connectBuiltin(builtins[d.upstreamName()])
	}
	if t.server.isOwn("tcp", to) {
		return errLoop
	}
	end, err := t.server.network.Dial(to, t.conf.Bind, t.server.marks.mark(t.up.flow.Class()))
	if err != nil {
		return err
	}
	t.upstream.end = end
	d.departed()
	return t.upstream.watch()
}

// departed tells the class, once, that the connection has left it, or will not.
func (d *dialling) departed() {
	t := d.session
	if d.unsettled {
		d.unsettled = false
		t.up.flow.Left(time.Now())
	}
}

// awaitAnswer gives the address that is being tried so long to answer.
func (d *dialling) awaitAnswer(patience time.Duration) {
	t, attempt := d.session, d.session.upstream.key
	d.attemptBy = time.Now().Add(patience)
	d.timer = time.AfterFunc(patience, func() {
		t.do(func(t *tcpSession) {
			if t.stage == connecting && t.upstream.key == attempt {
				d.attemptFailed(errTimeout)
			}
		})
	})
}

// attemptFailed goes on to the next address.
func (d *dialling) attemptFailed(err error) {
	t := d.session
	if timer := d.timer; timer != nil {
		timer.Stop()
	}
	t.upstream.close()
	d.failed(d.upstreamName(), cmp.Or(destinationName(t.destination), d.upstreamName()), err)
	d.tryAddress()
}

// dialled looks how an attempt at an address has come out.
func (d *dialling) dialled() {
	t := d.session
	err := t.upstream.connected()
	if err == nil && t.upstream.end.Local() == t.destination { // TCP's simultaneous open
		err = errLoop
	}
	if err != nil {
		d.attemptFailed(err)
		return
	}
	if config := t.secure.upstream[d.upstreamName()]; config != nil {
		d.timer.Stop()
		t.upstream.originate(config, d.attemptBy, d.met)
		return
	}
	d.established()
}

// met goes on after the handshake with an upstream has succeeded, or failed.
func (d *dialling) met(err error) {
	if err != nil {
		d.attemptFailed(err)
		return
	}
	d.established()
}

// established relays from here on.
func (d *dialling) established() {
	t := d.session
	t.name, t.number = d.upstreamName(), d.next
	t.tellFailOver(d.errs)
	d.departed()
	d.stop()
	t.client.setUserTimeout(time.Duration(t.conf.IdleTimeout))
	t.upstream.setUserTimeout(time.Duration(t.conf.IdleTimeout))
	t.relay.reach(t.name)
	t.stage, t.driver = relaying, t.relay
	t.relay.drive()
}

// clientLeaves ends a session that has no upstream yet and whose client has reset
// the connection, or has ended it without having sent anything: that one after a
// time of grace.
func (d *dialling) clientLeaves() {
	t := d.session
	switch {
	case t.client.Broken:
		t.finish(stats.Aborted)
	case t.client.Ends && d.grace == nil && t.client.end.AtEnd():
		d.grace = time.AfterFunc(leaveGrace, func() {
			t.do(func(t *tcpSession) {
				if t.stage < relaying {
					t.finish(stats.Aborted)
				}
			})
		})
	}
}

// builtins are the upstreams that are built in: each serves one end of a
// connection until it has read an end.
var builtins = map[string]func(net.Conn){
	policy.Echo:    func(c net.Conn) { io.Copy(c, c) },
	policy.Discard: func(c net.Conn) { io.Copy(io.Discard, c) },
}

// connectBuiltin connects to an upstream that is built in.
func (t *tcpSession) connectBuiltin(serve func(net.Conn)) error {
	end, theirs, err := t.server.network.Pair()
	if err != nil {
		return err
	}
	t.upstream.end = end
	t.server.wg.Go(func() {
		defer theirs.Close()
		defer t.server.rescue(t) // before that looks like an end
		serve(theirs)
	})
	t.upstream.Writable = true
	return t.upstream.watch()
}

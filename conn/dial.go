package conn

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

var (
	errLoop    = errors.New("the address is one of shaper's own listeners, or its own socket")
	errTimeout = errors.New("i/o timeout")
	errFamily  = errors.New("it has no address of the family of the listener's bind")
)

// leaveGrace is how long a session waits and dials on after the client has sent a
// FIN and nothing else. One that only wants to listen does so too.
const leaveGrace = 500 * time.Millisecond

// dialling is how a session reaches the first upstream of its listener that can
// be reached, and of a name the first address.
type dialling struct {
	until     time.Time        // when a want of descriptors is a reason to give up
	next      int              // upstream of the list
	addrs     []netip.AddrPort // of the present upstream, still to be tried
	by        time.Time        // when the present upstream is given up
	begun     bool             // something has left for an upstream, or the class has been told that nothing will
	errs      []error
	timer     *time.Timer        // gives up the present address, or tries all again
	attemptBy time.Time          // when it does the first
	grace     *time.Timer        // gives up the client; nil: it has not left
	resolve   context.CancelFunc // nil: no name is being resolved
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
	*d = dialling{}
}

// dial begins to reach an upstream, or goes on with the address for which the session
// has changed its class.
func (t *tcpSession) dial() {
	t.up.count(t.up.flow.Class(), shaper.Cost{Connections: 1})
	t.stage = connecting
	d := &t.dialling
	d.by = time.Now().Add(time.Duration(t.conf.ConnectTimeout))
	if d.until.IsZero() { // for the first time
		d.until = d.by
		t.service.stats.Sent[stats.Upstream].Connections.Add(1)
	}
	switch t.clientLeaves(); {
	case t.stage == ended:
	case len(d.addrs) > 0:
		t.tryAddress()
	default:
		t.tryUpstream()
	}
}

// tryUpstream tries the next upstream of the list; the session ends where there
// is no more.
func (t *tcpSession) tryUpstream() {
	d := &t.dialling
	if d.next == len(t.conf.Upstream) {
		if d.lacksDescriptors() && time.Now().Before(d.until) {
			t.dialLater()
			return
		}
		t.warn(unreachable, "err", errors.Join(d.errs...))
		t.finish(d.unreached())
		return
	}
	d.next++
	d.by = time.Now().Add(time.Duration(t.conf.ConnectTimeout))
	if addrs, known := literally(t.upstreamName()); known {
		t.tryAddresses(addrs)
	} else {
		t.resolve(t.upstreamName())
	}
}

// upstreamName returns the upstream that is being tried.
func (t *tcpSession) upstreamName() string { return t.conf.Upstream[t.dialling.next-1] }

// dialPause is how long a session waits for a descriptor that it lacks, each time.
const dialPause = 20 * time.Millisecond

// lacksDescriptors reports whether an upstream might be reached if the process had
// one more. Clients that wait for a slot may have them all; those of the next session
// that ends are for this one rather than for another that waits.
func (d *dialling) lacksDescriptors() bool {
	return slices.ContainsFunc(d.errs, lacksDescriptors)
}

func lacksDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// dialLater tries all upstreams again.
func (t *tcpSession) dialLater() {
	d := &t.dialling
	d.next, d.errs = 0, nil
	d.timer = time.AfterFunc(dialPause, func() {
		t.drive(func(t *tcpSession) {
			if t.stage == connecting {
				t.tryUpstream()
			}
		})
	})
}

// resolve looks up the addresses of a name, each time, and tries them.
func (t *tcpSession) resolve(upstream string) {
	ctx, cancel := context.WithDeadline(t.server.ctx, t.dialling.by)
	t.dialling.resolve = cancel
	t.server.wg.Go(func() {
		defer cancel()
		defer t.server.rescue(t)
		addrs, err := t.server.lookup(ctx, upstream)
		t.drive(func(t *tcpSession) {
			t.dialling.resolve = nil
			if err != nil {
				t.failed(upstream, upstream, &lookupError{err})
				t.tryUpstream()
				return
			}
			t.tryAddresses(addrs)
		})
	})
}

// tryAddresses tries the addresses of an upstream that can be reached. The one that
// the session was classified by comes first: a name may have them in another order
// each time.
func (t *tcpSession) tryAddresses(addrs []netip.AddrPort) {
	d := &t.dialling
	d.addrs = reachable(addrs, t.conf.Bind)
	if len(d.addrs) == 0 {
		t.failed(t.upstreamName(), t.upstreamName(), errFamily)
	}
	if i := slices.Index(d.addrs, t.destination); i > 0 {
		d.addrs[0], d.addrs[i] = d.addrs[i], d.addrs[0]
	}
	t.tryAddress()
}

// tryAddress begins to connect to the next address, or tries the next upstream.
func (t *tcpSession) tryAddress() {
	d := &t.dialling
	for len(d.addrs) > 0 {
		to := d.addrs[0]
		if t.isElsewhere(to) {
			t.server.wg.Go(t.follow) // it needs locks that come before the session's
			return
		}
		patience := time.Until(d.by) / time.Duration(len(d.addrs))
		d.addrs = d.addrs[1:]
		t.destination = to
		if !to.IsValid() {
			t.dialBuiltin(builtins[t.upstreamName()])
			return
		}
		if err := t.connect(to); err != nil {
			t.upstream.close()
			t.failed(t.upstreamName(), to.String(), err)
			continue
		}
		attempt := t.upstream.key
		d.attemptBy = time.Now().Add(patience)
		d.timer = time.AfterFunc(patience, func() { t.drive(func(t *tcpSession) { t.giveUp(attempt) }) })
		return
	}
	t.tryUpstream()
}

// connect begins to connect. The connection has left its class when something
// leaves for an upstream: not before its name is resolved.
func (t *tcpSession) connect(to netip.AddrPort) error {
	if t.server.isOwn("tcp", to) {
		return errLoop
	}
	end, err := t.server.network.Dial(to, t.conf.Bind, t.server.marks.mark(t.up.flow.Class()))
	if err != nil {
		return err
	}
	t.upstream.end = end
	t.left()
	return t.upstream.watch()
}

// left tells the class that the connection has left it, once.
func (t *tcpSession) left() {
	if d := &t.dialling; !d.begun {
		d.begun = true
		t.up.flow.Left(time.Now())
	}
}

// giveUp ends the attempt at an address that has taken too long.
func (t *tcpSession) giveUp(attempt uint64) {
	if t.stage == connecting && t.upstream.key == attempt {
		t.attemptFailed(errTimeout)
	}
}

// attemptFailed goes on to the next address.
func (t *tcpSession) attemptFailed(err error) {
	t.dialling.timer.Stop()
	t.upstream.close()
	t.failed(t.upstreamName(), t.destination.String(), err)
	t.tryAddress()
}

// dialled looks how an attempt at an address has come out.
func (t *tcpSession) dialled() {
	err := t.upstream.connected()
	if err == nil && t.upstream.end.Local() == t.destination { // TCP's simultaneous open
		err = errLoop
	}
	if err != nil {
		t.attemptFailed(err)
		return
	}
	if config := t.secure.upstream[t.upstreamName()]; config != nil {
		t.originate(config)
		return
	}
	t.established()
}

// established relays from here on.
func (t *tcpSession) established() {
	t.name, t.number = t.upstreamName(), t.dialling.next
	t.tellFailOver()
	t.left()
	t.dialling.stop()
	t.client.setUserTimeout(time.Duration(t.conf.IdleTimeout))
	t.upstream.setUserTimeout(time.Duration(t.conf.IdleTimeout))
	if t.messages != nil {
		t.messages.reach(t.name)
	}
	t.stage = relaying
	t.goOn()
}

// clientLeaves ends a session that has no upstream yet and whose client has reset
// the connection, or has ended it without having sent anything: that one after a
// time of grace.
func (t *tcpSession) clientLeaves() {
	switch {
	case t.client.Broken:
		t.finish(stats.Aborted)
	case t.client.Ends && t.dialling.grace == nil && t.client.end.AtEnd():
		t.dialling.grace = time.AfterFunc(leaveGrace, func() {
			t.drive(func(t *tcpSession) {
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

// dialBuiltin connects to an upstream that is built in.
func (t *tcpSession) dialBuiltin(serve func(net.Conn)) {
	if err := t.connectBuiltin(serve); err != nil {
		t.upstream.close()
		t.failed(t.upstreamName(), t.upstreamName(), err)
		t.tryUpstream()
		return
	}
	t.upstream.Writable = true
	t.established()
}

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
	return t.upstream.watch()
}

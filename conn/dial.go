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

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/upstream"
)

// leaveGrace is how long a session still waits and dials after its client has sent a FIN and
// nothing before it. The client may have left, or may only want to listen.
const leaveGrace = 500 * time.Millisecond

// dialling is how a session reaches an upstream: the first one of its listener that can be
// reached, at the first of its addresses that can be. It drives the session until then. The
// lock of the session guards it.
//
// A session waits in this order: slot, name, class, connect. The name comes before the class,
// since it may take long, and a class that counts connections lets nothing else go until the
// last one has departed.
type dialling struct {
	session *tcpSession // never changes
	found   func()      // begins a session that has its first address; nil: it has begun

	// The present upstream.
	addrs   []upstream.Address // its addresses that are still to be tried
	resolve context.CancelFunc // ends the lookup of its name; nil: there is none
	race    race               // of the addresses before the present one

	clock dialClock
	errs  []error // of all attempts
	grace alarm   // ends the session of a client that has left
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
			d.dial()
		}
	}
}

// changed implements driver.
func (d *dialling) changed(s *side) {
	if s == &d.session.client {
		d.clientLeaves()
	} else if s.Writable {
		d.answered(s)
	}
}

// granted implements driver: the class lets the connection go.
func (d *dialling) granted(by *direction, now time.Time) {
	if d.session.stage != opening {
		by.flow.Left(now)
		return
	}
	d.dial()
}

// finish implements part.
func (d *dialling) finish(stats.Result) {
	d.session.up.departed() // if it has not, it never will
	d.stop()
}

// awaitSlot acquires a slot, at once or later, and then tries an address.
func (d *dialling) awaitSlot() {
	if d.session.place.acquire() {
		d.tryAddress()
	}
}

// stop ends the dial, whether or not it has reached an upstream.
func (d *dialling) stop() {
	d.grace.stop()
	d.clock.stop()
	if d.resolve != nil {
		d.resolve()
	}
	d.race.end()
	*d = dialling{session: d.session}
}

// forget makes the session look up its upstream once more after it has waited for a slot: the
// addresses may be stale by then.
func (d *dialling) forget() {
	if len(d.addrs) > 0 {
		d.session.course.walk.Back()
		d.addrs = nil
	}
}

// tryUpstream tries the next upstream of the list. If there is none, the session ends.
func (d *dialling) tryUpstream() {
	t := d.session
	if !t.course.walk.Next(time.Now()) {
		t.warn(unreachable, "err", errors.Join(d.errs...))
		t.finish(unreached(d.errs))
		return
	}
	d.clock.begin(time.Duration(t.conf.ConnectTimeout))
	if addrs, known := t.known(); known {
		d.tryAddresses(addrs)
		return
	}
	t.up.departed() // the class must not wait for a name
	d.lookUp(t.aim())
}

// lookUp looks up the addresses of a name in the background, and then tries them.
func (d *dialling) lookUp(name string) {
	t := d.session
	ctx, cancel := context.WithDeadline(t.server.ctx, d.clock.giveUpAt)
	d.resolve = cancel
	t.server.wg.Go(func() {
		defer cancel()
		defer t.server.rescue(t)
		addrs, err := t.server.names.Find(ctx, name)
		t.do(func(t *tcpSession) {
			d.resolve = nil
			if err != nil {
				d.failed(t.course.walk.Upstream(), name, &upstream.LookupError{Err: err})
				d.tryUpstream()
				return
			}
			d.tryAddresses(addrs)
		})
	})
}

// tryAddresses tries the addresses of the present upstream. The one by which the session was
// classified comes first, since a name may return them in another order each time.
func (d *dialling) tryAddresses(addrs []upstream.Address) {
	t := d.session
	d.clock.resolved()
	addrs = t.permitted(addrs)
	nowhere := upstream.ErrFamily
	if len(addrs) == 0 {
		nowhere = errDenied
	}
	if d.addrs = t.course.walk.Arrange(time.Now(), addrs); len(d.addrs) == 0 {
		d.failed(t.course.walk.Upstream(), t.aim(), nowhere)
	}
	isDestination := func(at upstream.Address) bool { return at.AddrPort == t.course.destination }
	if i := slices.IndexFunc(d.addrs, isDestination); i > 0 {
		d.addrs[0], d.addrs[i] = d.addrs[i], d.addrs[0]
	}
	d.tryAddress()
}

// tryAddress takes the next step towards the next address of the present upstream. If it has
// none, it tries the next upstream.
func (d *dialling) tryAddress() {
	t := d.session
	switch {
	case len(d.addrs) == 0 && d.race.isOn():
		d.awaitRivals()
	case len(d.addrs) == 0:
		d.tryUpstream()
	case t.stage == arriving:
		t.course.destination, t.course.located = d.addrs[0].AddrPort, true
		t.server.wg.Go(d.found) // it takes locks that come before the session's
	case d.mayChangeClasses(d.addrs[0].AddrPort):
		t.server.wg.Go(d.enterNext) // likewise
	case t.stage == resolving:
		d.askClass()
	default:
		d.attempt()
	}
}

// askClass asks the class whether the connection may go. It has a slot and an address.
func (d *dialling) askClass() {
	t := d.session
	t.stage = opening
	t.up.ask(time.Now(), shaper.Cost{Connections: 1})
	d.drive()
}

// dial connects to the upstream. The class has let the connection go.
func (d *dialling) dial() {
	t := d.session
	t.up.count(t.up.flow.Class(), shaper.Cost{Connections: 1})
	t.stage, t.up.unsettled = connecting, true
	if first := d.clock.resume(); first { // not again after a failover
		t.service.stats.Sent[stats.Upstream].Connections.Add(1)
	}
	if d.clientLeaves(); t.stage != ended {
		d.tryAddress()
	}
}

// attempt starts to connect to the next address.
func (d *dialling) attempt() {
	t := d.session
	to := d.addrs[0]
	t.course.take(to)
	err := d.connect(to.AddrPort)
	if mayPass(err) && d.clock.mayRetry() {
		d.attemptLater()
		return
	}
	if d.tryNextBind(err) {
		return
	}
	share := d.clock.remaining() / time.Duration(len(d.addrs))
	d.addrs = d.addrs[1:]
	switch {
	case err != nil:
		d.attemptFailed(err)
	case d.mayRace(to):
		d.awaitTurn()
	case to.IsValid():
		d.awaitAnswer(share)
	default: // it is connected already
		d.clock.early = 0
		d.dialled()
	}
}

// dialPause is how long a session waits before it asks for a descriptor again.
const dialPause = 20 * time.Millisecond

// mayPass reports whether an attempt has failed for a reason that may be gone in a moment: the
// process lacks descriptors, or a unix socket has no room for one more connection.
func mayPass(err error) bool { return lacksDescriptors(err) || errors.Is(err, unix.EAGAIN) }

// attemptLater tries an address again after a pause. If the process has no descriptor free,
// clients that wait for a slot may hold them all. Since this session has a slot, it should get
// the descriptors of the next session that ends.
func (d *dialling) attemptLater() {
	t := d.session
	t.upstream.close()
	d.clock.after(dialPause, t, func() {
		d.clock.renew()
		d.tryAddress()
	})
}

// connect starts to connect. With that, the connection departs from its class.
func (d *dialling) connect(to netip.AddrPort) error {
	t := d.session
	if name, ok := policy.UnixName(t.course.walk.Upstream()); ok {
		return d.connectUnix(name)
	}
	if !to.IsValid() {
		return t.connectBuiltin(builtins[t.course.walk.Upstream()])
	}
	if t.server.isOwn("tcp", to) {
		return upstream.ErrLoop
	}
	from := d.bound(to)
	end, err := t.server.network.Dial(to, from, t.server.marks.mark(t.up.flow.Class()))
	if err != nil {
		return portError(err, from)
	}
	t.upstream.end = end
	t.up.departed()
	return t.upstream.watch()
}

// connectUnix connects to a unix socket, at once.
func (d *dialling) connectUnix(name string) error {
	t := d.session
	if t.server.isOwnUnix(name) {
		return upstream.ErrLoop
	}
	end, err := t.server.network.DialUnix(name)
	if err != nil {
		return err
	}
	t.upstream.end, t.upstream.Writable = end, true
	t.up.departed()
	return t.upstream.watch()
}

// awaitAnswer gives the present address up if it does not answer in its share of the time.
func (d *dialling) awaitAnswer(share time.Duration) {
	if d.race.isOn() { // none of them has answered in time, too
		share = d.clock.remaining()
	}
	d.clock.share(share)
	d.clock.after(share, d.session, func() {
		d.race.lost(upstream.ErrTimeout)
		d.attemptFailed(upstream.ErrTimeout)
	})
}

// attemptFailed notes why the present address cannot be reached, and tries the next one.
func (d *dialling) attemptFailed(err error) {
	t := d.session
	d.clock.stop()
	t.upstream.close()
	t.course.target().Failed(time.Now(), err)
	d.failed(t.course.walk.Upstream(), cmp.Or(destinationName(t.course.destination), t.course.walk.Upstream()), err)
	d.tryAddress()
}

// answered checks whether the attempt on a side has succeeded: the present one, or that of a
// rival. The poller has news of it.
func (d *dialling) answered(s *side) {
	if r := d.race.on(s); r != nil {
		r.answered()
		return
	}
	if err := connected(s, d.session.course.destination); err != nil {
		d.attemptFailed(err)
		return
	}
	d.dialled()
}

// connected returns the error of an attempt to connect that has ended.
func connected(s *side, to netip.AddrPort) error {
	err := s.connected()
	if err == nil && s.end.Local() == to { // connected to itself: see refuseSelf
		err = upstream.ErrLoop
	}
	return err
}

// dialled goes on after the present attempt has succeeded: it introduces the client, and does
// the TLS handshake if there is one.
func (d *dialling) dialled() {
	t := d.session
	d.clock.stop()
	d.addrs = append(d.addrs, d.race.end()...)
	if err := t.introduce(); err != nil {
		d.attemptFailed(err)
		return
	}
	if config := t.conf.secure.upstream[t.course.walk.Upstream()]; config != nil {
		t.upstream.originate(config, d.clock.deadline(), d.handshakeDone)
		return
	}
	d.established()
}

// handshakeDone goes on after the TLS handshake with an upstream.
func (d *dialling) handshakeDone(err error) {
	if err != nil {
		d.attemptFailed(err)
		return
	}
	d.established()
}

// established starts the relay: the session has its upstream.
func (d *dialling) established() {
	t := d.session
	t.course.reached = true
	t.logFailover(d.errs)
	t.up.departed()
	d.stop()
	if !t.entrance().connected() {
		return
	}
	t.client.setUserTimeout(time.Duration(t.conf.IdleTimeout))
	t.upstream.setUserTimeout(time.Duration(t.conf.IdleTimeout))
	t.relay.reach(t.aim())
	t.stage, t.driver = relaying, t.relay
	t.relay.drive()
}

// clientLeaves ends a session without an upstream if its client has left. A client that has
// reset the connection has left. One that has sent a FIN, and nothing before it, has left
// after leaveGrace.
func (d *dialling) clientLeaves() {
	t := d.session
	switch {
	case t.client.Broken:
		t.finish(stats.Aborted)
	case t.client.Ends && !d.grace.isSet() && t.client.end.AtEnd():
		d.grace.after(leaveGrace, t, func() { t.finish(stats.Aborted) })
	}
}

// builtins are the built-in upstreams. Each serves one end of a connection until it reads EOF.
var builtins = map[string]func(net.Conn){
	policy.Echo:    func(c net.Conn) { io.Copy(c, c) },
	policy.Discard: func(c net.Conn) { io.Copy(io.Discard, c) },
}

// connectBuiltin connects to a built-in upstream.
func (t *tcpSession) connectBuiltin(serve func(net.Conn)) error {
	end, theirs, err := t.server.network.Pair()
	if err != nil {
		return err
	}
	t.upstream.end = end
	t.server.wg.Go(func() {
		defer theirs.Close()
		defer t.server.rescue(t) // a panic must not look like a clean end, so theirs is closed after this
		serve(theirs)
	})
	t.upstream.Writable = true
	return t.upstream.watch()
}

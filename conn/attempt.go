package conn

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/upstream"
)

// attempt starts to connect to the next address.
func (d *dialling) attempt() {
	t := d.session
	to := d.search.addrs[0]
	t.course.take(to)
	d.clock.expect(longConnect)
	err := d.connect(to.AddrPort)
	if mayPass(err) && d.clock.mayRetry() {
		d.attemptLater()
		return
	}
	if d.tryNextBind(err) {
		return
	}
	share := d.clock.remaining() / time.Duration(len(d.search.addrs))
	d.search.addrs = d.search.addrs[1:]
	switch {
	case err != nil:
		d.attemptFailed(err)
	case d.search.nextIsOf(to) && !t.course.located: // each address may have classes of its own
		d.raceNext()
	case to.IsValid():
		d.await(share)
	default: // it is connected already
		d.dialled()
	}
}

// dialPause is how long a session waits before it asks for a descriptor again.
const dialPause = 20 * time.Millisecond

// mayPass reports whether an attempt has failed for a reason that may be gone in a moment: the
// process lacks descriptors, or a unix socket has no room for one more connection.
func mayPass(err error) bool { return lacksDescriptors(err) || errors.Is(err, unix.EAGAIN) }

// attemptLater tries an address again after a pause. If the process has no descriptor free,
// clients that wait for a permit may hold them all. Since this session has a permit, it should get
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
func (d *dialling) connect(to netip.AddrPort) (err error) {
	t := d.session
	name := t.course.walk.Upstream()
	path, isUnix := policy.UnixName(name)
	switch {
	case isUnix:
		err = t.upstream.connectUnix(path)
	case !to.IsValid():
		err = t.upstream.connectBuiltin(builtins[name])
	case !t.entrance().allows(to): // since a reload
		err = errDenied
	case t.server.isOwn("tcp", to):
		err = upstream.ErrLoop
	default:
		err = t.upstream.connectFrom(d.chooseOurs(to), to)
	}
	if err != nil {
		return err
	}
	t.up.departed()
	return t.upstream.watch()
}

// await gives up the present address, if there is one, and its rivals, if none of them answers within a
// time: their share of what remains, which is all of it if there is no other address to try.
func (d *dialling) await(share time.Duration) {
	d.clock.after(share, d.session, func() {
		d.race.lost(upstream.ErrTimeout)
		if d.session.upstream.isWatched() {
			d.attemptFailed(upstream.ErrTimeout)
		} else {
			d.tryAddress()
		}
	})
}

// attemptFailed notes why the present address cannot be reached, and tries the next one.
func (d *dialling) attemptFailed(err error) {
	t := d.session
	d.clock.stop()
	t.upstream.close()
	d.search.missed(t, t.course.target(), err)
	d.tryAddress()
}

// answered checks whether the attempt on a side has succeeded: the present one, or that of a
// rival. The poller has reported that it is over.
func (d *dialling) answered(s *side) {
	if r := d.race.rivalOn(s); r != nil {
		r.answered()
		return
	}
	if err := connected(s, d.session.course.destination); err != nil {
		d.attemptFailed(err)
		return
	}
	d.dialled()
}

// connected returns the error of an attempt that is over. If the side has connected to itself,
// that is ErrLoop.
func connected(s *side, to netip.AddrPort) error {
	err := s.connected()
	if err == nil && s.end.Local() == to { // see refuseSelf
		err = upstream.ErrLoop
	}
	return err
}

// dialled goes on after the present attempt has succeeded: it introduces the client, and does
// the TLS handshake if there is one.
func (d *dialling) dialled() {
	t := d.session
	d.clock.stop()
	d.search.addrs = append(d.search.addrs, d.race.beaten()...)
	if err := t.introduce(); err != nil {
		d.attemptFailed(err)
		return
	}
	if config := t.conf.secure.upstream[t.course.walk.Upstream()]; config != nil {
		d.clock.expect(longHandshake)
		t.upstream.originate(config, d.clock.share(len(d.search.addrs)), d.handshakeDone)
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
	d.search.failures.logFailover(t)
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

package conn

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
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
//
// A name is resolved before the connection asks its class. A class that counts connections
// lets nothing else go until the last one has left, and a name may take long. So the
// order is: slot, name, class, connect.
type dialling struct {
	next      int              // upstream of the list
	addrs     []netip.AddrPort // of the present upstream, still to be tried
	by        time.Time        // when the present upstream is given up
	patience  time.Duration    // what that had of connect_timeout when it was resolved
	until     time.Time        // when a want of descriptors is a reason to give up; zero: it has not dialled yet
	begun     bool             // something has left for an upstream, or the class has been told that nothing will
	errs      []error
	timer     *time.Timer        // gives up the present address, or tries it again
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

// forget has the upstream that was found looked up once more, after a wait: its addresses
// may be old by then.
func (d *dialling) forget() {
	if len(d.addrs) > 0 {
		d.next, d.addrs = d.next-1, nil
	}
}

// tryUpstream goes on with the next upstream of the list; the session ends if there is no
// more.
func (t *tcpSession) tryUpstream() {
	d := &t.dialling
	if d.next == len(t.conf.Upstream) {
		t.warn(unreachable, "err", errors.Join(d.errs...))
		t.finish(d.unreached())
		return
	}
	d.next++
	d.by = time.Now().Add(time.Duration(t.conf.ConnectTimeout))
	if addrs, known := literally(t.upstreamName()); known {
		t.tryAddresses(addrs)
		return
	}
	t.left() // a class that has let the connection go does not wait for a name
	t.resolve(t.upstreamName())
}

// upstreamName returns the upstream that is being tried.
func (t *tcpSession) upstreamName() string { return t.conf.Upstream[t.dialling.next-1] }

// resolve looks up the addresses of a name, each time, and goes on with them.
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

// tryAddresses goes on with the addresses of an upstream that can be reached. The one that
// the session was classified by comes first: a name may have them in another order
// each time.
func (t *tcpSession) tryAddresses(addrs []netip.AddrPort) {
	d := &t.dialling
	d.patience = time.Until(d.by)
	d.addrs = reachable(addrs, t.conf.Bind)
	if len(d.addrs) == 0 {
		t.failed(t.upstreamName(), t.upstreamName(), errFamily)
	}
	if i := slices.Index(d.addrs, t.destination); i > 0 {
		d.addrs[0], d.addrs[i] = d.addrs[i], d.addrs[0]
	}
	t.tryAddress()
}

// tryAddress does what comes next with the next address, or goes on with the next
// upstream.
func (t *tcpSession) tryAddress() {
	d := &t.dialling
	switch {
	case len(d.addrs) == 0:
		t.tryUpstream()
	case t.stage == arriving:
		t.destination, t.located = d.addrs[0], true
		t.server.wg.Go(t.begin) // it needs locks that come before the session's
	case t.isElsewhere(d.addrs[0]):
		t.server.wg.Go(t.follow) // likewise
	case t.stage == resolving:
		t.askClass()
	default:
		t.attempt()
	}
}

// askClass has the connection, which has a slot and an address, wait for its class.
func (t *tcpSession) askClass() {
	t.stage = opening
	t.up.ask(time.Now(), shaper.Cost{Connections: 1})
	t.goOn()
}

// dial connects to the address that was found: the class has let the connection go.
func (t *tcpSession) dial() {
	t.up.count(t.up.flow.Class(), shaper.Cost{Connections: 1})
	t.stage = connecting
	d := &t.dialling
	if d.until.IsZero() { // for the first time
		t.service.stats.Sent[stats.Upstream].Connections.Add(1)
	}
	d.by = time.Now().Add(d.patience)
	d.until = d.by
	if t.clientLeaves(); t.stage != ended {
		t.tryAddress()
	}
}

// attempt begins to connect to the next address.
func (t *tcpSession) attempt() {
	d := &t.dialling
	to := d.addrs[0]
	t.destination = to
	err := t.connect(to)
	if lacksDescriptors(err) && time.Now().Before(d.until) {
		t.attemptLater()
		return
	}
	patience := time.Until(d.by) / time.Duration(len(d.addrs))
	d.addrs = d.addrs[1:]
	switch {
	case err != nil:
		t.attemptFailed(err)
	case to.IsValid():
		t.awaitAnswer(patience)
	default: // what is built in is there
		t.established()
	}
}

func lacksDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// dialPause is how long a session waits for a descriptor that it lacks, each time.
const dialPause = 20 * time.Millisecond

// attemptLater tries an address again, for which the process had no descriptor. Clients
// that wait for a slot may have them all; those of the next session that ends are for
// this one rather than for another that waits.
func (t *tcpSession) attemptLater() {
	t.upstream.close()
	t.dialling.timer = time.AfterFunc(dialPause, func() {
		t.drive(func(t *tcpSession) {
			if d := &t.dialling; t.stage == connecting {
				d.by = time.Now().Add(d.patience)
				t.tryAddress()
			}
		})
	})
}

// connect begins to connect. The connection leaves its class here.
func (t *tcpSession) connect(to netip.AddrPort) error {
	if !to.IsValid() {
		return t.connectBuiltin(builtins[t.upstreamName()])
	}
	if t.server.isOwn("tcp", to) {
		return errLoop
	}
	fd, err := newTCP(to, t.conf.Bind)
	if err != nil {
		return err
	}
	t.upstream.fd = fd
	t.server.marks.mark(fd, t.up.flow.Class())
	t.left()
	if err := connect(fd, to); err != nil {
		return err
	}
	return t.upstream.watch()
}

// left tells the class that the connection which it has let go has left, or will not: once.
func (t *tcpSession) left() {
	if d := &t.dialling; t.stage == connecting && !d.begun {
		d.begun = true
		t.up.flow.Left(time.Now())
	}
}

// awaitAnswer gives the address that is being tried so long to answer.
func (t *tcpSession) awaitAnswer(patience time.Duration) {
	d, attempt := &t.dialling, t.upstream.key
	d.attemptBy = time.Now().Add(patience)
	d.timer = time.AfterFunc(patience, func() { t.drive(func(t *tcpSession) { t.giveUp(attempt) }) })
}

// giveUp ends the attempt at an address that has taken too long.
func (t *tcpSession) giveUp(attempt uint64) {
	if t.stage == connecting && t.upstream.key == attempt {
		t.attemptFailed(errTimeout)
	}
}

// attemptFailed goes on to the next address.
func (t *tcpSession) attemptFailed(err error) {
	if timer := t.dialling.timer; timer != nil {
		timer.Stop()
	}
	t.upstream.close()
	t.failed(t.upstreamName(), cmp.Or(destinationName(t.destination), t.upstreamName()), err)
	t.tryAddress()
}

// dialled looks how an attempt at an address has come out.
func (t *tcpSession) dialled() {
	err := t.upstream.connected()
	if err == nil && localOf(t.upstream.fd) == t.destination { // TCP's simultaneous open
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
	if t.exchange != nil {
		t.exchange.origin = originOf(t.conf, t.name)
	}
	t.left()
	t.dialling.stop()
	t.client.setUserTimeout(time.Duration(t.conf.IdleTimeout))
	t.upstream.setUserTimeout(time.Duration(t.conf.IdleTimeout))
	if t.exchange != nil {
		t.exchange.boundUnsent()
	}
	t.stage = relaying
	t.goOn()
}

// clientLeaves ends a session that has no upstream yet and whose client has reset
// the connection, or has ended it without having sent anything: that one after a
// time of grace.
func (t *tcpSession) clientLeaves() {
	switch {
	case t.client.broken:
		t.finish(stats.Aborted)
	case t.client.ends && t.dialling.grace == nil && t.client.empty():
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
var builtins = map[string]func(*net.UnixConn){
	policy.Echo:    func(c *net.UnixConn) { io.Copy(c, c) },
	policy.Discard: func(c *net.UnixConn) { io.Copy(io.Discard, c) },
}

// connectBuiltin connects to an upstream that is built in.
func (t *tcpSession) connectBuiltin(serve func(*net.UnixConn)) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	t.upstream.fd = fds[0]
	theirs, err := fileConn(fds[1])
	if err != nil {
		return err
	}
	t.server.wg.Go(func() {
		defer theirs.Close()
		defer t.server.rescue(t) // before that looks like an end
		serve(theirs)
	})
	t.upstream.writable = true
	return t.upstream.watch()
}

// fileConn takes over a descriptor of a unix socket.
func fileConn(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "builtin")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

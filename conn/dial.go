package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
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
	begun     bool             // something has left for an upstream
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

// dial begins to reach an upstream.
func (t *tcpSession) dial() {
	t.up.count(t.up.flow.Class(), shaper.Cost{Connections: 1})
	t.stage = connecting
	t.dialling.until = time.Now().Add(time.Duration(t.conf.ConnectTimeout))
	if t.clientLeaves(); t.stage != ended {
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
	upstream := t.conf.Upstream[d.next]
	d.next++
	d.by = time.Now().Add(time.Duration(t.conf.ConnectTimeout))
	if builtin := builtins[upstream]; builtin != nil {
		t.dialBuiltin(builtin)
	} else if ap, err := netip.ParseAddrPort(upstream); err == nil {
		t.tryAddresses([]netip.AddrPort{unmapped(ap)})
	} else {
		t.resolve(upstream)
	}
}

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

// failed notes why an upstream, or an address, cannot be reached.
func (d *dialling) failed(what string, err error) {
	d.errs = append(d.errs, fmt.Errorf("dial %s: %w", what, err))
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
				t.dialling.failed(upstream, err)
				t.tryUpstream()
				return
			}
			t.tryAddresses(addrs)
		})
	})
}

// tryAddresses tries the addresses of an upstream, those that the listener's own
// can reach.
func (t *tcpSession) tryAddresses(addrs []netip.AddrPort) {
	bind := t.conf.Bind
	t.dialling.addrs = slices.DeleteFunc(addrs, func(ap netip.AddrPort) bool {
		return bind.IsValid() && bind.Is4() != ap.Addr().Is4()
	})
	if len(t.dialling.addrs) == 0 {
		t.dialling.failed(t.conf.Upstream[t.dialling.next-1], errFamily)
	}
	t.tryAddress()
}

// tryAddress begins to connect to the next address, or tries the next upstream.
func (t *tcpSession) tryAddress() {
	d := &t.dialling
	for len(d.addrs) > 0 {
		to := d.addrs[0]
		patience := time.Until(d.by) / time.Duration(len(d.addrs))
		d.addrs = d.addrs[1:]
		if err := t.connect(to); err != nil {
			t.upstream.close()
			d.failed(to.String(), err)
			continue
		}
		t.destination = to
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
	t.dialling.failed(t.destination.String(), err)
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
	name := t.conf.Upstream[t.dialling.next-1]
	if config := t.secure.upstream[name]; config != nil {
		t.originate(config)
		return
	}
	t.established(name)
}

// established relays from here on.
func (t *tcpSession) established(name string) {
	t.name = name
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

// dialBuiltin connects to an upstream that is built in.
func (t *tcpSession) dialBuiltin(serve func(*net.UnixConn)) {
	if err := t.connectBuiltin(serve); err != nil {
		t.upstream.close()
		t.dialling.failed(t.conf.Upstream[t.dialling.next-1], err)
		t.tryUpstream()
		return
	}
	t.destination = netip.AddrPort{}
	t.upstream.writable = true
	t.established(t.conf.Upstream[t.dialling.next-1])
}

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

// refuseSelf closes a connection of a socket with itself, which comes about where the
// kernel chooses the very port that is dialled, and nobody listens there.
func refuseSelf(c net.Conn) error {
	if addrPortOf(c.LocalAddr()) != addrPortOf(c.RemoteAddr()) {
		return nil
	}
	c.Close()
	return fmt.Errorf("dial %s: %w", c.RemoteAddr(), errLoop)
}

// localAddr is where one of our sockets is bound.
type localAddr struct {
	network string
	addr    netip.AddrPort
}

// isOwn reports whether an address is one of our own listeners, in whatever
// spelling: unspecified, or another address of this machine while the listener
// is on all of them.
func (s *Server) isOwn(network string, to netip.AddrPort) bool {
	for _, own := range s.boundTo(network, to.Port()) {
		if sameHost(own.addr, to.Addr(), own.both) {
			return true
		}
	}
	return false
}

// ownHost is the address of one of our listeners; both says that [::] takes
// IPv4 too.
type ownHost struct {
	addr netip.Addr
	both bool
}

func (s *Server) boundTo(network string, port uint16) (hosts []ownHost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, b := range s.bound {
		if own := b.local(); own.network == network && own.addr.Port() == port {
			hosts = append(hosts, ownHost{own.addr.Addr(), networkOf("", at.text) != "6"})
		}
	}
	return hosts
}

// sameHost reports whether a connection to the address to could reach a socket
// bound to own; both says that [::] takes IPv4 too.
func sameHost(own, to netip.Addr, both bool) bool {
	own, to = own.WithZone(""), to.WithZone("")
	if to.IsUnspecified() { // Linux connects it to the loopback address
		to = loopback(to.Is4())
	}
	if own.IsUnspecified() {
		return (own.Is4() == to.Is4() || own.Is6() && both) && isLocal(to)
	}
	return own == to
}

func loopback(v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// isLocal reports whether an address is one of this machine's.
func isLocal(a netip.Addr) bool { return a.IsLoopback() || interfaces.have(a) }

// interfaces remembers the addresses of this machine for a second: a flood of
// datagrams asks for each.
var interfaces addresses

type addresses struct {
	mu    sync.Mutex
	known map[netip.Addr]bool
	asked time.Time
}

func (as *addresses) have(a netip.Addr) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	if now := time.Now(); now.Sub(as.asked) > time.Second {
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return true // better refuse a connection than feed a loop
		}
		as.known, as.asked = map[netip.Addr]bool{}, now
		for _, one := range addrs {
			if p, ok := one.(*net.IPNet); ok {
				ip, _ := netip.AddrFromSlice(p.IP)
				as.known[ip.Unmap()] = true
			}
		}
	}
	return as.known[a]
}

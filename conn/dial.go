package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
)

var (
	errDial = errors.New("no upstream could be reached")
	errLeft = errors.New("the client left")
	errLoop = errors.New("the address is one of shaper's own listeners, or its own socket")
)

// dialFunc connects to one upstream of a listener. It calls begin just before
// something leaves for there.
type dialFunc func(ctx context.Context, conf *policy.Listener, upstream string, begin func()) (streamConn, error)

// connect reaches the first upstream of the list that can be reached. It gives
// up when the client leaves meanwhile. The connection has left its class when
// the first attempt begins: not before the name is resolved.
func (t *tcpSession) connect() error {
	defer t.watchClient()()
	begin := sync.OnceFunc(t.up.flow.Left)
	defer begin() // where no attempt has come so far

	var errs []error
	for _, upstream := range t.conf.Upstream {
		conn, err := t.server.dial(t.ctx, t.conf, upstream, begin)
		if err == nil {
			return t.connected(conn, upstream)
		}
		if t.ctx.Err() != nil { // the client left, or the session was ended
			return context.Cause(t.ctx)
		}
		errs = append(errs, err)
	}
	t.server.log.Warn("no upstream could be reached", "listener", t.conf.Name, "client", t.source, "err", errors.Join(errs...))
	return errDial
}

// connected takes over the upstream connection, unless the session was ended
// meanwhile.
func (t *tcpSession) connected(conn streamConn, name string) error {
	upstream, err := newStream(conn, name)
	if err != nil {
		conn.Close()
		return err
	}
	t.place.Lock()
	defer t.place.Unlock()
	if t.ctx.Err() != nil {
		reset(conn)
		return context.Cause(t.ctx)
	}
	t.upstream = upstream
	t.destination = upstream.remote
	return nil
}

const (
	// watchAfter is when a dial has taken so long that the client is watched:
	// most dials are over before.
	watchAfter = 20 * time.Millisecond
	// leaveGrace is how long the dial goes on after the client has sent a FIN
	// and nothing else. One that only wants to listen does so too.
	leaveGrace = 500 * time.Millisecond
)

// watchClient cancels the session with errLeft when the client leaves. The
// caller calls stop when it has dialled, which awaits the watcher.
func (t *tcpSession) watchClient() (stop func()) {
	over, watched := make(chan struct{}), make(chan struct{})
	timer := time.AfterFunc(watchAfter, func() {
		defer close(watched)
		if t.clientLeft(over) {
			t.cancel(errLeft)
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		close(over) // this and the deadline end clientLeft
		t.client.SetReadDeadline(time.Unix(1, 0))
		<-watched
		t.client.SetReadDeadline(time.Time{})
	}
}

// clientLeft waits until the client has reset the connection, or ended it
// without having sent anything; false when the dial is over before.
func (t *tcpSession) clientLeft(over <-chan struct{}) bool {
	raw, err := t.client.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	err = raw.Read(func(fd uintptr) bool {
		var peeked [1]byte
		n, _, err := unix.Recvfrom(int(fd), peeked[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = err == nil && n == 0
		if err != nil && err != unix.EAGAIN && err != unix.EINTR {
			return true
		}
		return ended || eventsOf(fd)&unix.POLLERR != 0 // behind bytes that were sent, recv does not show the error
	})
	if err != nil {
		return false
	}
	if !ended {
		return true
	}
	select {
	case <-over:
		return false
	case <-time.After(leaveGrace):
		return true
	}
}

// dialUpstream connects to an upstream of a listener, unless that is one of our
// own listeners. Names are resolved each time.
func (s *Server) dialUpstream(ctx context.Context, conf *policy.Listener, upstream string, begin func()) (streamConn, error) {
	switch upstream {
	case policy.Echo:
		return s.builtin(func(c *net.UnixConn) { io.Copy(c, c) })
	case policy.Discard:
		return s.builtin(func(c *net.UnixConn) { io.Copy(io.Discard, c) })
	}
	dialer := net.Dialer{
		Timeout:   time.Duration(conf.ConnectTimeout),
		KeepAlive: -1, // idle_timeout ends what is dead
		Control: func(_, address string, _ syscall.RawConn) error {
			if err := s.refuseLoop("tcp", address); err != nil {
				return err
			}
			begin()
			return nil
		},
	}
	if conf.Bind.IsValid() {
		dialer.LocalAddr = &net.TCPAddr{IP: conf.Bind.AsSlice(), Zone: conf.Bind.Zone()}
	}
	c, err := dialer.DialContext(ctx, "tcp", upstream)
	if err != nil {
		return nil, err
	}
	if err := refuseSelf(c); err != nil { // TCP's simultaneous open
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// refuseSelf closes a connection of a socket with itself, which comes about where the
// kernel chooses the very port that is dialled, and nobody listens there.
func refuseSelf(c net.Conn) error {
	if addrPortOf(c.LocalAddr()) != addrPortOf(c.RemoteAddr()) {
		return nil
	}
	reset(c)
	return fmt.Errorf("dial %s: %w", c.RemoteAddr(), errLoop)
}

// builtin returns a connection whose other end is served by f, until it has
// read an end.
func (s *Server) builtin(f func(*net.UnixConn)) (streamConn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, err := fileConn(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, err
	}
	theirs, err := fileConn(fds[1])
	if err != nil {
		ours.Close()
		return nil, err
	}
	s.wg.Go(func() {
		defer theirs.Close()
		f(theirs)
	})
	return ours, nil
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

// localAddr is where one of our sockets is bound.
type localAddr struct {
	network string
	addr    netip.AddrPort
}

// refuseLoop returns an error where an address is one of our own listeners.
func (s *Server) refuseLoop(network, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err == nil && s.isOwn(network, unmapped(to)) {
		err = errLoop
	}
	if err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	return nil
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

// firstDestination returns where the first upstream of the list is, for rules
// that ask; invalid where that is not known.
func (t *tcpSession) firstDestination() netip.AddrPort {
	ctx, cancel := context.WithTimeout(t.ctx, time.Duration(t.conf.ConnectTimeout))
	defer cancel()
	return resolve(ctx, t.conf.Upstream[0])
}

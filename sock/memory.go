package sock

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Memory is a network within the process, for tests in virtual time. Its ends behave like
// those of TCP on one machine, but nothing takes time. Every address leads to this network.
// The zero Memory is ready. Any number of goroutines may use it.
type Memory struct {
	mu        sync.Mutex // guards the fields below; the locks of listeners and links are taken after it
	listeners map[netip.AddrPort]*MemoryListener
	named     map[string]*MemoryListener // those of unix sockets
	silent    map[netip.AddrPort]bool    // addresses that do not answer
	unusable  map[netip.Addr]error       // addresses of ours from which nothing is dialled, and why
	lastPort  uint16

	interceptor *MemoryListener // accepts the connections to all addresses; nil: none does
}

// NewPollers implements Network. It returns one, so that events have one order.
func (*Memory) NewPollers() ([]*Poller, error) {
	return []*Poller{newPoller(bell(make(chan bool, 1)))}, nil
}

// NewPipes implements Network. It returns none.
func (*Memory) NewPipes() Pipes { return nil }

// bell is the sleeper of a poller in memory. It finds no events: sources in memory report
// theirs by turns.
type bell chan bool

func (b bell) run(p *Poller) {
	for p.turn() {
		if p.rest() {
			<-b
		}
	}
}

func (b bell) wake() {
	select {
	case b <- true:
	default:
	}
}

func (bell) release()   {}
func (bell) remove(int) {}

// add implements sleeper. It refuses, since there are no descriptors here.
func (bell) add(int, Events, uint64) error { return unix.EPERM }

// Silence makes nobody answer at an address: a dial waits forever.
func (m *Memory) Silence(at netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent == nil {
		m.silent = map[netip.AddrPort]bool{}
	}
	m.silent[at] = true
}

// Refuse makes dials from an address of ours fail; with nil they succeed again.
func (m *Memory) Refuse(from netip.Addr, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unusable == nil {
		m.unusable = map[netip.Addr]error{}
	}
	m.unusable[from] = why
}

// Listen implements Network. The host of an address is an IP address, or "" for all.
func (m *Memory) Listen(network, address string) (Listener, error) {
	l, err := m.listen(address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	return l, nil
}

// listen is Listen with a plain error.
func (m *Memory) listen(address string) (*MemoryListener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "::"
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at.Port() == 0 {
		at = m.port(at.Addr())
	}
	if m.listeners[at] != nil {
		return nil, unix.EADDRINUSE
	}
	if m.listeners == nil {
		m.listeners = map[netip.AddrPort]*MemoryListener{}
	}
	l := &MemoryListener{network: m, at: at}
	l.changed.L = &l.mu
	m.listeners[at] = l
	return l, nil
}

// ListenUnix implements Network. Names are those of this network alone, and anybody may connect.
func (m *Memory) ListenUnix(name string, _ Access) (Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.named[name] != nil {
		return nil, &ServedError{Path: name}
	}
	if m.named == nil {
		m.named = map[string]*MemoryListener{}
	}
	l := &MemoryListener{network: m, name: name}
	l.changed.L = &l.mu
	m.named[name] = l
	return l, nil
}

// DialUnix implements Network.
func (m *Memory) DialUnix(name string) (End, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ours, theirs := NewLink()
	ours.unix, theirs.unix = true, true
	if l := m.named[name]; l == nil || !l.offer(theirs) {
		return nil, os.NewSyscallError("connect", unix.ECONNREFUSED)
	}
	return ours, nil
}

// port returns an address with a port that was never used. mu is held.
func (m *Memory) port(host netip.Addr) netip.AddrPort {
	m.lastPort++
	return netip.AddrPortFrom(host, 10_000+m.lastPort)
}

// listening returns the listener at an address, or nil. mu is held.
func (m *Memory) listening(at netip.AddrPort) *MemoryListener {
	for _, host := range []netip.Addr{at.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if l := m.listeners[netip.AddrPortFrom(host, at.Port())]; l != nil {
			return l
		}
	}
	return nil
}

// Dial implements Network.
func (m *Memory) Dial(to netip.AddrPort, from Local) (End, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.unusable[from.Addr]; err != nil {
		return nil, err
	}
	return m.dial(to, from), nil
}

// DialEnd is Dial, and returns the end as one in memory.
func (m *Memory) DialEnd(to netip.AddrPort, from netip.Addr) *MemoryEnd {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dial(to, Local{Addr: from})
}

// dial is DialEnd with mu held. If a listener intercepts, it gets each connection without a mark.
func (m *Memory) dial(to netip.AddrPort, from Local) *MemoryEnd {
	if !from.Addr.IsValid() {
		from.Addr = to.Addr()
	}
	ours, theirs := newLink(m.port(from.Addr), to)
	l := m.listening(to)
	if m.interceptor != nil && from.Mark == 0 {
		l = m.interceptor
	}
	switch {
	case m.silent[to]:
		ours.state = linkConnecting
	case l == nil || !l.offer(theirs):
		ours.state, ours.failure.err = linkDown, unix.ECONNREFUSED
	}
	return ours
}

// DialConn connects to an address, as net.Dial does, and waits, until ctx ends at most. from is the
// local address; "" is any.
func (m *Memory) DialConn(ctx context.Context, from, address string) (*MemoryConn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	ours, _ := netip.ParseAddr(from)
	c := NewMemoryConn(m.DialEnd(to, ours))
	defer context.AfterFunc(ctx, func() { c.SetWriteDeadline(time.Now()) })()
	if err := c.connected(); err != nil {
		c.Close()
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return c, nil
}

// Pair implements Network.
func (m *Memory) Pair() (End, net.Conn, error) {
	ours, theirs := newLink(netip.AddrPort{}, netip.AddrPort{})
	return ours, NewMemoryConn(theirs), nil
}

// MemoryListener is a Listener in memory. Any number of goroutines may use it.
type MemoryListener struct {
	// Set by Listen.
	network *Memory
	at      netip.AddrPort
	name    string // of a unix socket; "" for none

	// watched guards itself; the poller's lock guards Due.
	watched
	Due

	// mu guards the fields below. That of network is taken before it, those of links and
	// of a poller after it.
	mu      sync.Mutex
	changed sync.Cond
	queue   []*MemoryEnd // not accepted yet
	closed  bool
}

// offer puts an end into the queue. It returns false if the listener is closed.
func (l *MemoryListener) offer(e *MemoryEnd) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.queue = append(l.queue, e)
	l.changed.Broadcast()
	l.news(l)
	return true
}

// Accept implements Listener.
func (l *MemoryListener) Accept() (End, netip.AddrPort, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, err := l.next()
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	return e, e.peer.local, nil
}

// Next waits for the next connection, and returns it as a net.Conn. It returns EBADF if the
// listener is closed.
func (l *MemoryListener) Next() (*MemoryConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		e, err := l.next()
		if err == nil {
			return NewMemoryConn(e), nil
		}
		if err != unix.EAGAIN {
			return nil, err
		}
		l.changed.Wait()
	}
}

// next is Accept with mu held.
func (l *MemoryListener) next() (*MemoryEnd, error) {
	switch {
	case l.closed:
		return nil, unix.EBADF
	case len(l.queue) == 0:
		return nil, unix.EAGAIN
	}
	e := l.queue[0]
	l.queue = l.queue[1:]
	return e, nil
}

// Turn implements Turner. It reports to the watcher if there is something to accept.
func (l *MemoryListener) Turn() {
	l.mu.Lock()
	waiting := len(l.queue) > 0
	l.mu.Unlock()
	if waiting {
		l.report(Readable)
	}
}

// watch implements Source.
func (l *MemoryListener) watch(p *Poller, events Events, key uint64) error {
	l.begin(p, events, key, l)
	return nil
}

// Addr implements Listener.
func (l *MemoryListener) Addr() net.Addr {
	if l.name != "" {
		return &net.UnixAddr{Name: l.name, Net: "unix"}
	}
	return net.TCPAddrFromAddrPort(l.at)
}

// Intercept implements Listener.
func (l *MemoryListener) Intercept(uint32) (undo func(), err error) {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.interceptor
	n.interceptor = l
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.interceptor = before
	}, nil
}

// Permit implements Listener: it does nothing.
func (l *MemoryListener) Permit(Access) error { return nil }

// IsGone implements Listener: it is false.
func (l *MemoryListener) IsGone() bool { return false }

// Close implements Listener. It resets the connections in the queue.
func (l *MemoryListener) Close() error {
	l.network.mu.Lock()
	if l.name != "" {
		delete(l.network.named, l.name)
	} else {
		delete(l.network.listeners, l.at)
	}
	if l.network.interceptor == l {
		l.network.interceptor = nil
	}
	l.network.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, e := range l.queue {
		e.Reset()
	}
	l.queue = nil
	l.changed.Broadcast()
	return nil
}

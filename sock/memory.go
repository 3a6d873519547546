package sock

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// Memory is a network within the process, for tests in virtual time: its ends behave as
// those of TCP on one machine do, at once. It has no routes: every address leads here. The
// zero Memory is ready.
type Memory struct {
	mu        sync.Mutex // guards what follows; that of a listener and of a link come after it
	listeners map[netip.AddrPort]*MemoryListener
	silent    map[netip.AddrPort]bool // that nobody answers at
	lastPort  uint16
}

// NewPollers implements Network: it returns one, which makes for an order of events.
func (*Memory) NewPollers() ([]*Poller, error) {
	return []*Poller{newPoller(bell(make(chan bool, 1)))}, nil
}

// NewPipes implements Network: it returns none.
func (*Memory) NewPipes() Pipes { return nil }

// bell is the sleeper of ends in memory, which have their news told by turns.
type bell chan bool

func (b bell) sleep(wanted func() bool) bool {
	if !wanted() {
		<-b
	}
	return true
}

func (b bell) wake() {
	select {
	case b <- true:
	default:
	}
}

func (bell) tell(*Poller) {}
func (bell) release()     {}
func (bell) remove(int)   {}

// add implements sleeper: there are no descriptors here.
func (bell) add(int, Events, uint64) error { return unix.EPERM }

// Silence lets nobody answer at an address: who dials it waits for ever.
func (m *Memory) Silence(at netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent == nil {
		m.silent = map[netip.AddrPort]bool{}
	}
	m.silent[at] = true
}

// Listen implements Network. The host of an address is a number or nothing, which is all
// of them.
func (m *Memory) Listen(network, address string) (Listener, error) {
	l, err := m.listen(address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	return l, nil
}

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

// port returns an address with a port that nobody has had; mu is held.
func (m *Memory) port(host netip.Addr) netip.AddrPort {
	m.lastPort++
	return netip.AddrPortFrom(host, 10_000+m.lastPort)
}

// listening returns who listens at an address; nil: nobody does. mu is held.
func (m *Memory) listening(at netip.AddrPort) *MemoryListener {
	for _, host := range []netip.Addr{at.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if l := m.listeners[netip.AddrPortFrom(host, at.Port())]; l != nil {
			return l
		}
	}
	return nil
}

// Dial implements Network.
func (m *Memory) Dial(to netip.AddrPort, from netip.Addr, _ uint32) (End, error) {
	return m.DialEnd(to, from), nil
}

// DialEnd is Dial for who uses the end as one in memory.
func (m *Memory) DialEnd(to netip.AddrPort, from netip.Addr) *MemoryEnd {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !from.IsValid() {
		from = to.Addr()
	}
	ours, theirs := newLink(m.port(from), to)
	l := m.listening(to)
	switch {
	case m.silent[to]:
		ours.state = linkConnecting
	case l == nil || !l.offer(theirs):
		ours.state, ours.err = linkDown, unix.ECONNREFUSED
	}
	return ours
}

// DialConn connects from an address, "" for any, to another one, as net.Dial does.
func (m *Memory) DialConn(from, address string) (*MemoryConn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	ours, _ := netip.ParseAddr(from)
	c := NewMemoryConn(m.DialEnd(to, ours))
	if err := c.connected(); err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return c, nil
}

// Pair implements Network.
func (m *Memory) Pair() (End, net.Conn, error) {
	ours, theirs := newLink(netip.AddrPort{}, netip.AddrPort{})
	return ours, NewMemoryConn(theirs), nil
}

// MemoryListener is a Listener in memory.
type MemoryListener struct {
	network *Memory
	at      netip.AddrPort
	watched
	Due

	mu      sync.Mutex // guards what follows
	changed sync.Cond
	queue   []*MemoryEnd // that nobody has accepted
	closed  bool
}

// offer puts an end into the queue; false if the listener is closed.
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

// Next is Accept that waits.
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

// Turn implements Turner: it tells the watcher of what is in the queue.
func (l *MemoryListener) Turn() {
	l.mu.Lock()
	waiting := len(l.queue) > 0
	l.mu.Unlock()
	if waiting {
		l.tell(Readable)
	}
}

func (l *MemoryListener) watch(p *Poller, events Events, key uint64) error {
	l.begin(p, events, key, l)
	return nil
}

// Addr implements Listener.
func (l *MemoryListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// Close implements Listener. Those in the queue are reset.
func (l *MemoryListener) Close() error {
	l.network.mu.Lock()
	delete(l.network.listeners, l.at)
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

package sock

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListeningSocket is a Listener of the kernel. Any number of goroutines may use it.
type ListeningSocket struct {
	// Set before others use it.
	addr net.Addr
	ours bool  // as OnlyOurs says
	file *File // nil: it is no unix socket, or has no file of ours

	// mu guards fd: Accept must not use a descriptor that Close has given back. A poller
	// uses fd without mu, and forgets it before Close.
	mu sync.Mutex
	fd Descriptor // negative: closed
}

// Listen implements Network.
func (Kernel) Listen(network, address string) (Listener, error) {
	// Keepalives cost a few percent of a short connection, and sessions have time-outs.
	l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return NewListener(l.(*net.TCPListener))
}

// ListenUnix implements Network.
func (Kernel) ListenUnix(name string, who Access) (Listener, error) {
	bound, file, err := BindUnix(name, who)
	if err != nil {
		return nil, err
	}
	l, err := NewListener(bound)
	if err != nil {
		file.Remove()
		return nil, err
	}
	l.file = file
	return l, nil
}

// Permit implements Listener.
func (l *ListeningSocket) Permit(who Access) error { return l.file.Permit(who) }

// IsGone implements Listener.
func (l *ListeningSocket) IsGone() bool { return l.file.IsGone() }

// NewListener returns a ListeningSocket for a *net.TCPListener or a *net.UnixListener, which
// it closes.
func NewListener(l interface {
	net.Listener
	syscall.Conn
}) (*ListeningSocket, error) {
	defer l.Close()
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	raw.Control(func(d uintptr) { fd, err = unix.FcntlInt(d, unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // accepted sockets inherit it
	return &ListeningSocket{addr: l.Addr(), fd: Descriptor(fd)}, nil
}

// OnlyOurs makes a listener of unix sockets accept connections of this process only. It is
// for a name that anybody can connect to. Call it before Accept.
func (l *ListeningSocket) OnlyOurs() { l.ours = true }

// Addr implements Listener.
func (l *ListeningSocket) Addr() net.Addr { return l.addr }

// Accept implements Listener. After OnlyOurs it returns EPERM for a connection of another
// process.
func (l *ListeningSocket) Accept() (End, netip.AddrPort, error) {
	l.mu.Lock()
	fd, from, err := acceptNow(int(l.fd))
	l.mu.Unlock()
	switch {
	case err != nil:
		return nil, from, err
	case l.ours && pidOf(fd) != os.Getpid():
		closeNow(fd)
		return nil, from, unix.EPERM
	}
	return &Socket{Descriptor: Descriptor(fd)}, from, nil
}

// watch implements Source.
func (l *ListeningSocket) watch(p *Poller, events Events, key uint64) error {
	return l.fd.watch(p, events, key)
}

func (l *ListeningSocket) unwatch(p *Poller) { l.fd.unwatch(p) }

// Close implements Listener. It removes the file of a unix socket.
func (l *ListeningSocket) Close() error {
	l.file.Remove()
	l.mu.Lock()
	defer l.mu.Unlock()
	closeNow(int(l.fd))
	l.fd = -1
	return nil
}

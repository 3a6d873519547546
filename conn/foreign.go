package conn

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/sock"
)

// foreign are sockets with addresses of other machines. Transparent listeners answer from them: the
// client gets its answers from the address to which it has sent. If the listener itself has the port
// of the server at all addresses, its own socket answers. Sessions with one server share a socket.
// udpUpstreams bounds these sockets, too. The zero foreign is empty and ready to use.
type foreign struct {
	sharing sync.Mutex                        // held while a port of ours is shared
	mu      sync.Mutex                        // guards sockets and what they count; the lock of a gate comes after it
	sockets map[netip.AddrPort]*foreignSocket // by the address that each is bound to
}

type foreignSocket struct {
	conn     *net.UDPConn
	raw      syscall.RawConn
	sessions int
}

// acquire returns the socket that is bound to an address. Each acquire needs one release. The error is
// EADDRINUSE if another socket has the port at all addresses, and does not share it.
func (f *foreign) acquire(s *Server, at netip.AddrPort) (syscall.RawConn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.sockets[at]
	if one == nil {
		var err error
		if one, err = bindForeign(&s.udpUpstreams, at); err != nil {
			return nil, err
		}
		if f.sockets == nil {
			f.sockets = map[netip.AddrPort]*foreignSocket{}
		}
		f.sockets[at] = one
	}
	one.sessions++
	return one.raw, nil
}

// release undoes acquire. It closes the socket if no session has it any more.
func (f *foreign) release(s *Server, at netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.sockets[at]
	if one.sessions--; one.sessions == 0 {
		one.conn.Close()
		delete(f.sockets, at)
		s.udpUpstreams.leave()
	}
}

// bindForeign binds a socket that only sends, and enters the gate that bounds such sockets. The socket
// discards what arrives, which is for the listener.
func bindForeign(bound *gate, at netip.AddrPort) (*foreignSocket, error) {
	if !bound.tryEnter() {
		return nil, errDescriptors
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			if err = sock.Descriptor(fd).Intercept(policy.OwnMark); err != nil {
				return
			}
			if err = sock.Descriptor(fd).Deafen(); err == nil {
				// A server of this machine may have the port at all addresses.
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}
		})
		if failed != nil {
			return failed
		}
		return err
	}}
	c, err := config.ListenPacket(context.Background(), "udp", at.String())
	if err != nil {
		bound.leave()
		return nil, fmt.Errorf("answers cannot leave from there: %w", err)
	}
	one := &foreignSocket{conn: c.(*net.UDPConn)}
	if one.raw, err = one.conn.SyscallConn(); err != nil {
		c.Close()
		bound.leave()
		return nil, err
	}
	return one, nil
}

package conn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"shaper/policy"
	"shaper/sock"
)

// systemdPrefix begins the address of a socket that systemd has passed: "systemd:NAME".
const systemdPrefix = "systemd:"

// Inherited are the sockets that systemd has passed to the process, by their names
// (sd_listen_fds_with_names(3)). They stay open, so that a listener that one reload removes
// can come back with the next.
type Inherited map[string][]*os.File

// listenTCP binds an address or a unix socket, or takes the socket that was passed for it.
func (in Inherited) listenTCP(on sock.Network, address string, who sock.Access) (sock.Listener, error) {
	if name, ok := strings.CutPrefix(address, systemdPrefix); ok {
		return inherit(in[name], name, func(f *os.File) (sock.Listener, error) {
			l, err := net.FileListener(f)
			if err != nil {
				return nil, err
			}
			switch l := l.(type) {
			case *net.TCPListener:
				return sock.NewListener(l)
			case *net.UnixListener:
				return sock.NewListener(l)
			}
			l.Close()
			return nil, errWrongSocket
		})
	}
	if name, ok := policy.UnixName(address); ok {
		return on.ListenUnix(name, who)
	}
	return on.Listen(networkOf("tcp", address), address)
}

// listenUDP is listenTCP for UDP.
func (in Inherited) listenUDP(address string) (*net.UDPConn, error) {
	if name, ok := strings.CutPrefix(address, systemdPrefix); ok {
		return inherit(in[name], name, func(f *os.File) (*net.UDPConn, error) {
			c, err := net.FilePacketConn(f)
			if err != nil {
				return nil, err
			}
			if udp, ok := c.(*net.UDPConn); ok {
				return udp, nil
			}
			c.Close()
			return nil, errWrongSocket
		})
	}
	c, err := net.ListenPacket(networkOf("udp", address), address)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

var errWrongSocket = errors.New("it is not a socket of the listener's protocol")

// inherit returns the only one of files that open accepts. It is an error if there is none, or
// more than one.
func inherit[T io.Closer](files []*os.File, name string, open func(*os.File) (T, error)) (found T, err error) {
	if len(files) == 0 {
		return found, fmt.Errorf("systemd has passed no socket named %q: see FileDescriptorName= in systemd.socket(5)", name)
	}
	n := 0
	for _, f := range files {
		one, openErr := open(f)
		switch {
		case openErr != nil:
			err = openErr
			continue
		case n > 0:
			one.Close()
		default:
			found = one
		}
		n++
	}
	switch {
	case n == 0:
		return found, fmt.Errorf("the socket %q that systemd passed: %w", name, err)
	case n > 1:
		found.Close()
		return found, fmt.Errorf("systemd has passed %d sockets named %q of one protocol: give each a name of its own", n, name)
	}
	return found, nil
}

package conn

import (
	"errors"
	"net/netip"

	"shaper/sock"
)

// tlsEnd is an end over TLS: one end of a socket pair, with a tunnel at the other. It is closed
// until the handshake is done. Like all ends, it is guarded by the lock of the session.
type tlsEnd struct {
	*sock.Socket // of the pair
	tunnel       *tunnel
	version      uint16 // of TLS; 0 until the handshake is done
}

// take takes the end of the pair from the tunnel. The handshake is done, and the session's
// lock is held.
func (e *tlsEnd) take() {
	e.Socket, e.tunnel.outside = e.tunnel.outside, e.Socket
	e.version = e.tunnel.version
}

// Close implements sock.End. The tunnel still encrypts and sends what has been written.
func (e *tlsEnd) Close() {
	e.tunnel.leave()
	e.Socket.Close()
}

// Reset implements sock.End.
func (e *tlsEnd) Reset() {
	e.tunnel.abort()
	e.Socket.Reset()
}

// Read implements sock.End. If TLS has failed, EOF on the pair is that failure.
func (e *tlsEnd) Read(p []byte) (int, error) {
	n, err := e.Socket.Read(p)
	if n == 0 && err == nil && len(p) > 0 {
		err = e.Failure()
	}
	return n, err
}

// isCut reports whether a read failed because TLS was cut. All that came before is read.
func isCut(err error) bool {
	var f *tunnelFailure
	return errors.As(err, &f)
}

// Failure implements sock.End: it returns why TLS was cut.
func (e *tlsEnd) Failure() error {
	if f := e.tunnel.failure.Load(); f != nil {
		return f
	}
	return nil
}

// Unsent implements sock.End. For bytes in the tunnel it adds 1, however many they are.
func (e *tlsEnd) Unsent() int {
	n := e.Socket.Unsent()
	if e.tunnel.busy.Load() { // asked after the pair: the tunnel is busy before it empties the pair
		n++
	}
	e.tunnel.control(func(d sock.Descriptor) { n += d.Unsent() })
	return n
}

// Local implements sock.End: it returns our address in the connection to the peer.
func (e *tlsEnd) Local() (at netip.AddrPort) {
	e.tunnel.control(func(d sock.Descriptor) { at = d.Local() })
	return at
}

// Set implements sock.End, for the connection to the peer.
func (e *tlsEnd) Set(o sock.Option, value int) {
	e.tunnel.control(func(d sock.Descriptor) { d.Set(o, value) })
	if o == sock.ReceiveBuffer {
		e.tunnel.narrow(value)
	}
}

// Get implements sock.End, for the connection to the peer.
func (e *tlsEnd) Get(o sock.Option) (value int) {
	e.tunnel.control(func(d sock.Descriptor) { value = d.Get(o) })
	return value
}

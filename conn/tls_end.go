package conn

import (
	"errors"

	"shaper/sock"
)

// tlsEnd is the end of a session over TLS: that of a pair, which has a tunnel behind it. It
// is closed until the handshake is done.
type tlsEnd struct {
	*sock.Socket // of the pair
	tunnel       *tunnel
	version      uint16 // of TLS; 0 until the handshake is done
}

// take takes over the end of the pair, when the handshake is done.
func (e *tlsEnd) take() {
	e.Socket, e.tunnel.outside = e.tunnel.outside, e.Socket
	e.version = e.tunnel.version
}

// Close implements sock.End. What has been written is still encrypted, and arrives.
func (e *tlsEnd) Close() {
	e.tunnel.leave()
	e.Socket.Close()
}

// Reset implements sock.End.
func (e *tlsEnd) Reset() {
	e.tunnel.abort()
	e.Socket.Reset()
}

// Read implements sock.End. An end of the pair is none if TLS has failed.
func (e *tlsEnd) Read(p []byte) (int, error) {
	n, err := e.Socket.Read(p)
	if n == 0 && err == nil && len(p) > 0 {
		err = e.Failure()
	}
	return n, err
}

// isCut reports whether an error of a read says that TLS has ended without an end. All that
// came before it has been read.
func isCut(err error) bool {
	var f *tunnelFailure
	return errors.As(err, &f)
}

// Failure implements sock.End: it returns why TLS has ended without an end.
func (e *tlsEnd) Failure() error {
	if f := e.tunnel.failure.Load(); f != nil {
		return f
	}
	return nil
}

// Unsent implements sock.End. Of what is on its way through the tunnel it returns any number
// above 0.
func (e *tlsEnd) Unsent() int {
	n := e.Socket.Unsent()
	if e.tunnel.busy.Load() { // after the pair: it is busy before that is empty
		n++
	}
	e.tunnel.control(func(d sock.Descriptor) { n += d.Unsent() })
	return n
}

// Set implements sock.End. Options are those of the connection to the peer.
func (e *tlsEnd) Set(o sock.Option, value int) {
	e.tunnel.control(func(d sock.Descriptor) { d.Set(o, value) })
	if o == sock.ReceiveBuffer {
		e.tunnel.narrow(value)
	}
}

// Get implements sock.End.
func (e *tlsEnd) Get(o sock.Option) (value int) {
	e.tunnel.control(func(d sock.Descriptor) { value = d.Get(o) })
	return value
}

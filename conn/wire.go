package conn

import (
	"io"
	"net"
	"time"

	"shaper/sock"
)

// wire is the connection beneath TLS.
type wire struct {
	*net.TCPConn
	heard bool // the peer has sent something
	ended bool // the peer has sent a FIN
}

// Read notes an end, since crypto/tls takes one between two records for a
// close_notify.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.TCPConn.Read(p)
	w.heard = w.heard || n > 0
	w.ended = w.ended || err == io.EOF
	return n, err
}

// SetWriteDeadline does nothing: crypto/tls would give a close_notify five seconds,
// and the peer may take longer to read what is before it.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// control calls with the descriptor of the connection, unless it is closed.
func (tn *tunnel) control(do func(sock.Descriptor)) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.wire == nil {
		return
	}
	if raw, err := tn.wire.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { do(sock.Descriptor(fd)) })
	}
}

// narrow bounds what waits for the session to what its class's receive buffer is to be.
func (tn *tunnel) narrow(n int) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.inside != nil {
		setBuffer(tn.inside, min(n, pairBuffer))
	}
}

// setBuffer bounds what waits behind a socket of a pair.
func setBuffer(c *net.UnixConn, n int) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { sock.Descriptor(fd).Set(sock.SendBuffer, n) })
	}
}

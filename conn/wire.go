package conn

import (
	"io"
	"net"
	"syscall"
	"time"

	"shaper/sock"
)

// wire is the connection beneath TLS. The goroutine that reads from it owns the fields.
type wire struct {
	streamConn
	heard bool // the peer has sent something
	ended bool // the peer has sent a FIN
}

// streamConn is a *net.TCPConn or a *net.UnixConn.
type streamConn interface {
	net.Conn
	syscall.Conn
}

// abandon makes the next close a reset, if the connection knows resets.
func (w *wire) abandon() {
	if tcp, ok := w.streamConn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
}

// Read notes the end of the connection: between two records, crypto/tls takes it for a
// close_notify.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.streamConn.Read(p)
	w.heard = w.heard || n > 0
	w.ended = w.ended || err == io.EOF
	return n, err
}

// SetWriteDeadline does nothing. crypto/tls would give a close_notify five seconds, and the
// peer may need longer to read what comes before it.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// control calls do with the descriptor of the connection, unless there is none.
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

// narrow bounds how many bytes wait in the pair for the session: n, or pairBuffer if that is less.
func (tn *tunnel) narrow(n int) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.inside != nil {
		setBuffer(tn.inside, min(n, pairBuffer))
	}
}

// setBuffer bounds how many bytes that are written to a socket of a pair wait to be read.
func setBuffer(c *net.UnixConn, n int) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { sock.Descriptor(fd).Set(sock.SendBuffer, n) })
	}
}

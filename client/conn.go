// Package client limits how fast a Go program sends, reads and connects.
package client

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// Limits are the classes of wrapped connections. A nil class limits nothing.
// Many connections may share a class, and one class may stand in several places.
// How many are open at once (max_connections) is not limited here. Where a class
// has a bucket for each source, or for each destination, that is the other end.
type Limits struct {
	Read  *shaper.Class // bytes that connections read
	Write *shaper.Class // bytes that they write
	Open  *shaper.Class // connections, as they are accepted or dialled
}

// Conn is a net.Conn whose bytes wait for their classes: Read returns no byte,
// and Write passes none on, before its class lets it go. Deadlines end the
// wait too; what Read has read by then is not lost but returned by the next.
//
// Where the network of its local address keeps messages, as UDP does, each Read
// and Write is one message, whole, and counts as one packet too.
type Conn struct {
	net.Conn
	closed   sync.Once
	messages bool // one Read or Write is one item
	read     shapedReader
	write    shapedWriter
}

// NewConn returns c with what it reads and writes limited. Limits.Open does
// not matter here.
func NewConn(c net.Conn, limits Limits) *Conn {
	who, now := otherEnd(c.RemoteAddr()), time.Now()
	return &Conn{
		Conn:     c,
		messages: keepsMessages(c.LocalAddr()),
		read:     shapedReader{flow: shaper.NewWaiter(limits.Read.Join(now, who)), deadline: newDeadline()},
		write:    shapedWriter{flow: shaper.NewWaiter(limits.Write.Join(now, who)), deadline: newDeadline()},
	}
}

// otherEnd returns whose buckets a wrapped connection has. What has no address
// shares those of the zero one.
func otherEnd(a net.Addr) policy.Conn {
	var at netip.AddrPort
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		at = a.AddrPort()
	}
	return policy.Conn{Source: at, Destination: at, Session: wrapped.Add(1)}
}

var wrapped atomic.Uint64 // numbers connections

// opens waits until a connection with the other end may open.
func opens(ctx context.Context, class *shaper.Class, with policy.Conn) error {
	class = class.Join(time.Now(), with)
	defer func() { class.Quit(time.Now()) }()
	return shaper.NewWaiter(class).Wait(ctx, shaper.Cost{Connections: 1}, false)
}

// keepsMessages reports whether what is written at once arrives at once, on the
// network of an address; a net.Conn of somebody's own may have none.
func keepsMessages(local net.Addr) bool {
	if local == nil {
		return false
	}
	switch local.Network() {
	case "udp", "udp4", "udp6", "ip", "ip4", "ip6", "unixgram", "unixpacket":
		return true
	}
	return false
}

// piece returns how many of n bytes may be one item of a flow.
func (c *Conn) piece(f *shaper.Waiter, n int) int {
	if c.messages {
		return n
	}
	if class := f.Class(); class != nil {
		return min(n, int(class.Piece()))
	}
	return min(n, shaper.MaxPiece)
}

// cost returns what an item of n bytes costs.
func (c *Conn) cost(n int) shaper.Cost {
	cost := shaper.Cost{Bytes: int64(n)}
	if c.messages {
		cost.Packets = 1
	}
	return cost
}

// shapedReader is the reading side of a Conn.
type shapedReader struct {
	mu       sync.Mutex // one reader at a time
	flow     *shaper.Waiter
	deadline *deadline
	early    []byte // read, and not let go yet when a deadline came; nil: nothing
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	r := &c.read
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(p) == 0 {
		return c.Conn.Read(p) // takes nothing, not even a message
	}
	if r.early != nil {
		return c.again(p)
	}
	n, err := c.Conn.Read(p[:c.piece(r.flow, len(p))])
	if n == 0 && (err != nil || !c.messages) {
		return 0, err
	}
	if wait := r.wait(c.cost(n)); wait != nil {
		r.early = bytes.Clone(p[:n])
		return 0, wait
	}
	return n, err
}

// again returns what an earlier Read could not.
func (c *Conn) again(p []byte) (int, error) {
	r := &c.read
	n := min(len(p), len(r.early))
	if err := r.wait(c.cost(n)); err != nil {
		return 0, err
	}
	copy(p, r.early)
	r.early = r.early[n:]
	if c.messages || len(r.early) == 0 { // the rest of a message is lost, as ever
		r.early = nil
	}
	return n, nil
}

// wait waits until what has been read may leave: to the caller, at once.
func (r *shapedReader) wait(cost shaper.Cost) error {
	return r.flow.Wait(r.deadline, cost, false)
}

// shapedWriter is the writing side of a Conn.
type shapedWriter struct {
	mu       sync.Mutex // one writer at a time, so that pieces of two do not mix
	flow     *shaper.Waiter
	deadline *deadline
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (written int, err error) {
	w := &c.write
	w.mu.Lock()
	defer w.mu.Unlock()
	for first := true; first || written < len(p); first = false {
		next := p[written : written+c.piece(w.flow, len(p)-written)]
		err := w.flow.Do(w.deadline, c.cost(len(next)), !first, func() error {
			n, err := c.Conn.Write(next)
			written += n
			return err
		})
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Close implements net.Conn. It ends Read and Write, also while they wait.
func (c *Conn) Close() error {
	c.read.deadline.close()
	c.write.deadline.close()
	c.closed.Do(func() {
		now := time.Now()
		c.read.flow.Class().Quit(now)
		c.write.flow.Class().Quit(now)
	})
	return c.Conn.Close()
}

// CloseWrite ends what is written, behind all that has been, where the
// connection that was wrapped can: a *net.TCPConn does.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	c.write.mu.Lock()
	defer c.write.mu.Unlock()
	return half.CloseWrite()
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.read.deadline.set(t)
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.write.deadline.set(t)
	return c.Conn.SetWriteDeadline(t)
}

// Listener is a net.Listener whose connections are limited, together, by
// classes. Accept holds one connection until Limits.Open lets it go, and those
// behind it wait in the kernel. One that the class refuses is closed.
type Listener struct {
	net.Listener
	Limits Limits

	once    sync.Once
	closing *deadline
	mu      sync.Mutex // one Accept at a time: each would hold a connection of its own
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		// Only what is there waits: leave taken ahead would be kept while nobody
		// comes, and let one more through than the class allows.
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		err = opens(l.closing, l.Limits.Open, otherEnd(c.RemoteAddr()))
		if err == nil {
			return NewConn(c, l.Limits), nil
		}
		c.Close()
		if errors.Is(err, net.ErrClosed) {
			return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: err}
		}
	}
}

func (l *Listener) init() {
	l.once.Do(func() { l.closing = newDeadline() })
}

// Close implements net.Listener. It ends Accept, also while that waits, and
// closes the connection that it holds.
func (l *Listener) Close() error {
	l.init()
	l.closing.close()
	return l.Listener.Close()
}

// Dialer dials connections that are limited, together, by classes.
type Dialer struct {
	net.Dialer
	Limits Limits
}

// Dial is DialContext without an end.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// numbered is otherEnd of an address that is not looked up.
func numbered(address string) policy.Conn {
	at, _ := netip.ParseAddrPort(address)
	return otherEnd(net.TCPAddrFromAddrPort(at))
}

// DialContext waits for Limits.Open and then connects. The context ends both.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := opens(ctx, d.Limits.Open, numbered(address)); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return NewConn(c, d.Limits), nil
}

package client

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"shaper/shaper"
)

// A Conn is a net.Conn whose bytes wait for their classes. Read returns a byte, and Write
// passes one on, only after its class lets it go. Deadlines and Close end the wait. If a
// deadline ends the wait of a Read, the next Read returns the bytes.
//
// If the network of its local address keeps messages, as UDP does, each Read and each
// Write is one whole message and also counts as one packet.
//
// As with any net.Conn, several goroutines may call its methods at the same time.
type Conn struct {
	// Set by wrap, read by all.
	net.Conn
	permit   *permit // of Limits.Open; nil: that is nil
	messages bool    // one Read or Write is one item

	read   shapedReader
	write  shapedWriter
	closed sync.Once // gives up the permit and the buckets
}

// NewConn limits one connection to a rate of bytes or packets in each direction. A burst of
// 0 is none.
func NewConn(c net.Conn, rate string, burst int) (*Conn, error) {
	limits, err := newLimits(rate, burst)
	if err != nil {
		return nil, err
	}
	if limits.Open != nil {
		return nil, neverLimits(limits.Open, "this one is open", "1mbit")
	}
	if err := limits.check(networkOf(c.LocalAddr())); err != nil {
		return nil, err
	}
	return Wrap(c, limits), nil
}

// Wrap returns a Conn that limits what c reads and writes. It ignores Limits.Open, since c
// is open. A class that counts nothing of what c carries limits nothing.
func Wrap(c net.Conn, limits Limits) *Conn { return wrap(c, limits, nil) }

// wrap is Wrap for a connection that holds a permit; nil: it holds none.
func wrap(c net.Conn, limits Limits, p *permit) *Conn {
	who, now := peerAt(c.RemoteAddr()), time.Now()
	return &Conn{
		Conn:     c,
		permit:   p,
		messages: keepsMessages(networkOf(c.LocalAddr())),
		read:     shapedReader{flow: shaper.NewWaiter(limits.Read.Join(now, who)), deadline: newDeadline()},
		write:    shapedWriter{flow: shaper.NewWaiter(limits.Write.Join(now, who)), deadline: newDeadline()},
	}
}

// piece returns how many of the next n bytes leave as one item.
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
	// Set by wrap, read by all.
	flow     *shaper.Waiter
	deadline *deadline

	mu    sync.Mutex // held by a Read for as long as it takes; guards early
	early []byte     // bytes of a Read whose wait a deadline ended; nil: none
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	r := &c.read
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(p) == 0 {
		return c.Conn.Read(p) // it reads nothing, not even a message
	}
	if r.early != nil {
		return c.readEarly(p)
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

// readEarly returns the bytes that an earlier Read has read but not returned. The caller
// holds read.mu.
func (c *Conn) readEarly(p []byte) (int, error) {
	r := &c.read
	n := min(len(p), len(r.early))
	if err := r.wait(c.cost(n)); err != nil {
		return 0, err
	}
	copy(p, r.early)
	r.early = r.early[n:]
	if c.messages || len(r.early) == 0 { // the rest of a message is lost, as in any Read
		r.early = nil
	}
	return n, nil
}

// wait waits until the class lets what has been read go to the caller of Read.
func (r *shapedReader) wait(cost shaper.Cost) error {
	return r.flow.Wait(r.deadline, cost, false)
}

// shapedWriter is the writing side of a Conn.
type shapedWriter struct {
	// Set by wrap, read by all.
	flow     *shaper.Waiter
	deadline *deadline

	mu sync.Mutex // held by a Write for as long as it takes, so that the pieces of two do not mix
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

// Close implements net.Conn. It ends the waits of Read and Write.
func (c *Conn) Close() error {
	c.read.deadline.close()
	c.write.deadline.close()
	err := c.Conn.Close()
	c.closed.Do(func() {
		now := time.Now()
		c.read.flow.Class().Quit(now)
		c.write.flow.Class().Quit(now)
		c.permit.leave(now)
	})
	return err
}

// CloseWrite closes the writing side after a Write in progress has ended. It returns
// errors.ErrUnsupported if the wrapped connection has no CloseWrite. A *net.TCPConn has one.
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

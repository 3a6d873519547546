package client

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"shaper/shaper"
)

// A Conn is a net.Conn whose bytes wait for their classes: Read returns no byte, and
// Write passes none on, before its class lets it go. Deadlines and Close end the wait.
// What Read has read when a deadline ends its wait is returned by the next Read.
//
// If the network of its local address keeps messages, as UDP does, each Read and each
// Write is one message, whole, and counts as one packet too.
type Conn struct {
	net.Conn
	place    *place // among those that are open; nil: nothing limits them
	closed   sync.Once
	messages bool // one Read or Write is one item
	read     shapedReader
	write    shapedWriter
}

// NewConn limits one connection to a rate of bytes or packets, each way.
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

// Wrap returns c with what it reads and writes limited. Limits.Open does not matter: the
// connection is open. A class that counts nothing of what c carries limits nothing.
func Wrap(c net.Conn, limits Limits) *Conn { return wrap(c, limits, nil) }

func wrap(c net.Conn, limits Limits, p *place) *Conn {
	who, now := otherEnd(c.RemoteAddr()), time.Now()
	return &Conn{
		Conn:     c,
		place:    p,
		messages: keepsMessages(networkOf(c.LocalAddr())),
		read:     shapedReader{flow: shaper.NewWaiter(limits.Read.Join(now, who)), deadline: newDeadline()},
		write:    shapedWriter{flow: shaper.NewWaiter(limits.Write.Join(now, who)), deadline: newDeadline()},
	}
}

// piece returns how many of n bytes are one item of a flow.
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
	early    []byte // what a Read had read when a deadline ended its wait; nil: nothing
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

// again returns what an earlier Read has read and did not return.
func (c *Conn) again(p []byte) (int, error) {
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

// wait waits until what has been read may go to the caller.
func (r *shapedReader) wait(cost shaper.Cost) error {
	return r.flow.Wait(r.deadline, cost, false)
}

// shapedWriter is the writing side of a Conn.
type shapedWriter struct {
	mu       sync.Mutex // one writer at a time, so that the pieces of two do not mix
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

// Close implements net.Conn. It ends a Read and a Write that wait.
func (c *Conn) Close() error {
	c.read.deadline.close()
	c.write.deadline.close()
	err := c.Conn.Close()
	c.closed.Do(func() {
		now := time.Now()
		c.read.flow.Class().Quit(now)
		c.write.flow.Class().Quit(now)
		c.place.leave(now)
	})
	return err
}

// CloseWrite closes the writing side, behind all that has been written. It returns
// errors.ErrUnsupported if the wrapped connection has no CloseWrite; a *net.TCPConn has.
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

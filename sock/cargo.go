package sock

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"shaper/buffer"
)

// Cargo is bytes that were read from one end and are not yet written to another. They are
// in a pipe, where the kernel moves them without a copy; or in a buffer, if they are few or
// no pipe is free. Both are taken when bytes are there and given back when they have gone,
// so that an idle Cargo holds none. One goroutine at a time may use it.
type Cargo struct {
	pipes   Pipes          // nil: none may be used
	refused *atomic.Uint64 // counts that the kernel would not splice
	pipe    *pipe
	buf     *buffer.Buffer
	n       int  // bytes that were read
	sent    int  // of those, written
	plenty  bool // the last read found as many bytes as it could take, or nearly
}

// Init prepares a Cargo, which is empty. refused counts that the kernel would not splice.
func (c *Cargo) Init(pipes Pipes, refused *atomic.Uint64) { *c = Cargo{pipes: pipes, refused: refused} }

// Which bytes go through a pipe: those that come in such numbers that copying
// them costs more than the system calls of a pipe.
const (
	smallRead = 16 << 10 // the most that is read where there was not plenty
	largeRead = 64 << 10 // the most that is copied at once
	minSplice = 16 << 10 // the smallest piece that is worth a pipe
)

// Most is how many bytes a Cargo can hold.
const Most = buffer.Max

// Load reads what is there, at most a piece, which is at most Most; the cargo is empty. No
// bytes and no error are the end. drained says that there surely was no more to read.
func (c *Cargo) Load(from End, piece int) (drained bool, err error) {
	c.n, c.sent = 0, 0
	if c.plenty && piece >= minSplice {
		if c.pipe = c.pipes.get(); c.pipe != nil {
			c.n, err = from.fill(c.pipe, piece)
			c.plenty = c.n >= smallRead/2
			switch {
			case err == unix.EINVAL: // the kernel does not splice from it
				c.release()
				c.forgoPipes()
			case c.n > 0 || err != nil:
				return false, c.loaded(err)
			}
			c.release() // and read: of an end, only Read tells whether it is one
		}
	}
	most := smallRead
	if c.plenty {
		most = largeRead
	}
	most = min(most, piece)
	c.buf = buffer.Get(most)
	c.n, err = from.Read(c.buf.Bytes[:most])
	c.plenty = c.n >= min(most, smallRead)
	return c.n < most, c.loaded(err)
}

// loaded gives back at once what nothing was read into.
func (c *Cargo) loaded(err error) error {
	if c.n == 0 {
		c.release()
	}
	return err
}

// Unload writes what the end takes at once, and returns how many bytes that were.
func (c *Cargo) Unload(to End) (n int, err error) {
	if c.pipe != nil {
		if n, err = to.drain(c.pipe, c.Remaining()); err == unix.EINVAL { // the kernel does not splice to it
			c.unpipe()
			c.forgoPipes()
		}
	}
	if c.pipe == nil {
		n, err = to.Write(c.buf.Bytes[c.sent:c.n])
	}
	c.sent += n
	return n, err
}

// forgoPipes copies from now on, since the kernel does not splice here.
func (c *Cargo) forgoPipes() {
	c.refused.Add(1)
	c.pipes = nil
}

// unpipe moves what is in the pipe into a buffer.
func (c *Cargo) unpipe() {
	c.buf = buffer.Get(c.n)
	for at := c.sent; at < c.n; {
		n, err := c.pipe.read(c.buf.Bytes[at:c.n])
		if err != nil && err != unix.EINTR {
			panic(err) // it is a pipe of our own, and the bytes are there
		}
		at += n
	}
	c.pipes.put(c.pipe)
	c.pipe = nil
}

// Len returns how many bytes Load has read.
func (c *Cargo) Len() int { return c.n }

// Remaining returns how many of those are still to be written.
func (c *Cargo) Remaining() int { return c.n - c.sent }

// CopyNext lets the next Load copy what it reads.
func (c *Cargo) CopyNext() { c.plenty = false }

// Clear forgets the cargo, sent or not.
func (c *Cargo) Clear() {
	if c.pipe != nil && c.Remaining() > 0 {
		c.unpipe()
	}
	c.n, c.sent = 0, 0
	c.release()
}

// release gives back what holds the cargo, which is empty.
func (c *Cargo) release() {
	if c.pipe != nil {
		c.pipes.put(c.pipe)
		c.pipe = nil
	}
	if c.buf != nil {
		c.buf.Put()
		c.buf = nil
	}
}

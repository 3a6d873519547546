package sock

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"shaper/buffer"
)

// Cargo holds bytes that were read from one end and are not yet written to another. They are
// in a pipe, through which the kernel moves them without a copy; or in a buffer, if they are
// few or no pipe is free. A Cargo takes a pipe or a buffer when it reads, and gives it back
// when it is empty, so an idle Cargo holds none. One goroutine at a time may use it.
type Cargo struct {
	pipes   Pipes          // nil: it must use none
	refused *atomic.Uint64 // counts how often the kernel refuses to splice
	pipe    *pipe          // holds the bytes; nil: buf does
	buf     *buffer.Buffer
	n       int  // bytes read
	sent    int  // of those, bytes written
	plenty  bool // the last read found so many bytes that the next one may be large
}

// Init prepares an empty Cargo. refused counts how often the kernel refuses to splice.
func (c *Cargo) Init(pipes Pipes, refused *atomic.Uint64) { *c = Cargo{pipes: pipes, refused: refused} }

// Bytes go through a pipe if there are so many that to copy them costs more than the system calls
// of a pipe.
const (
	smallRead = 16 << 10 // the most that one read copies, unless the last one found plenty
	largeRead = 64 << 10 // the most that one read copies if the last one found plenty
	minSplice = 16 << 10 // the smallest piece for a pipe
)

// Most is how many bytes a Cargo can hold.
const Most = buffer.Max

// Load reads what is there, at most piece bytes, and piece is at most Most. The Cargo must
// be empty. No bytes and no error are the end of the stream. If drained is true, there was
// no more to read.
func (c *Cargo) Load(from End, piece int) (drained bool, err error) {
	c.n, c.sent = 0, 0
	if c.plenty && piece >= minSplice {
		if c.pipe = c.pipes.get(); c.pipe != nil {
			c.n, err = from.fill(c.pipe, piece)
			c.plenty = c.n >= smallRead/2
			switch {
			case err == unix.EINVAL: // the kernel cannot splice from this end
				c.release()
				c.forgoPipes()
			case c.n > 0 || err != nil:
				return false, c.loaded(err)
			}
			c.release() // 0 bytes: Read knows whether it is the end
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

// loaded gives back the pipe or the buffer if nothing was read.
func (c *Cargo) loaded(err error) error {
	if c.n == 0 {
		c.release()
	}
	return err
}

// Unload writes as much as the end accepts without waiting, and returns how many bytes.
func (c *Cargo) Unload(to End) (n int, err error) {
	if c.pipe != nil {
		if n, err = to.drain(c.pipe, c.Remaining()); err == unix.EINVAL { // the kernel cannot splice to this end
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

// forgoPipes makes the Cargo copy from now on, since the kernel cannot splice here.
func (c *Cargo) forgoPipes() {
	c.refused.Add(1)
	c.pipes = nil
}

// unpipe moves the bytes from the pipe into a buffer.
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

// Len returns how many bytes the last Load has read.
func (c *Cargo) Len() int { return c.n }

// Remaining returns how many bytes are still to be written.
func (c *Cargo) Remaining() int { return c.n - c.sent }

// CopyNext makes the next Load copy, not splice.
func (c *Cargo) CopyNext() { c.plenty = false }

// Clear empties the Cargo, and discards what is not written.
func (c *Cargo) Clear() {
	if c.pipe != nil && c.Remaining() > 0 {
		c.unpipe()
	}
	c.n, c.sent = 0, 0
	c.release()
}

// release gives back the pipe, which must be empty, or the buffer.
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

package conn

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"shaper/buffer"
	"shaper/shaper"
)

// cargo is what one direction of a session has read and not yet written. It is
// in a pipe, where the kernel moves it without copying; or, where it is little
// or no pipe is free, in a buffer. Both are taken when bytes are there and given
// back when they have gone, so that an idle session holds none.
type cargo struct {
	pipes   pipes          // nil: none may be used
	refused *atomic.Uint64 // counts that the kernel would not splice
	pipe    *pipe
	buf     *buffer.Buffer
	n       int  // bytes that were read
	sent    int  // of those, written
	plenty  bool // the last read found as many bytes as it could take, or nearly
}

// Which bytes go through a pipe: those that come in such numbers that copying
// them costs more than the system calls of a pipe.
const (
	smallRead = 16 << 10 // the most that is read where there was not plenty
	largeRead = 64 << 10 // the most that is copied at once
	minSplice = 16 << 10 // the smallest piece that is worth a pipe
)

// It does not compile if a piece of a class does not fit into a buffer.
const _ = uint(buffer.Max - shaper.MaxPiece)

// load reads what is there, at most a piece; the cargo is empty. No bytes and no
// error are the end. It is drained where there was surely no more to read.
func (c *cargo) load(fd, piece int) (drained bool, err error) {
	c.n, c.sent = 0, 0
	if c.plenty && piece >= minSplice {
		if c.pipe = c.pipes.get(); c.pipe != nil {
			c.n, err = c.pipe.fill(fd, piece)
			c.plenty = c.n >= smallRead/2
			if err == unix.EINVAL { // the kernel does not splice from it
				c.release()
				c.forgoPipes()
				return c.load(fd, piece)
			}
			return false, c.loaded(err)
		}
	}
	most := smallRead
	if c.plenty {
		most = largeRead
	}
	most = min(most, piece)
	c.buf = buffer.Get(most)
	c.n, err = readNow(fd, c.buf.Bytes[:most])
	c.plenty = c.n >= min(most, smallRead)
	return c.n < most, c.loaded(err)
}

// loaded gives back at once what nothing was read into.
func (c *cargo) loaded(err error) error {
	if c.n == 0 {
		c.release()
	}
	return err
}

// unload writes what the socket takes at once, and returns how many bytes that
// were.
func (c *cargo) unload(fd int) (n int, err error) {
	if c.pipe != nil {
		if n, err = c.pipe.drain(fd, c.left()); err == unix.EINVAL { // the kernel does not splice to it
			c.unpipe()
			c.forgoPipes()
		}
	}
	if c.pipe == nil {
		n, err = sendNow(fd, c.buf.Bytes[c.sent:c.n])
	}
	c.sent += n
	return n, err
}

// forgoPipes copies from now on, since the kernel does not splice here.
func (c *cargo) forgoPipes() {
	c.refused.Add(1)
	c.pipes = nil
}

// unpipe moves what is in the pipe into a buffer.
func (c *cargo) unpipe() {
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

// left returns how many bytes are still to be written.
func (c *cargo) left() int { return c.n - c.sent }

// clear forgets the cargo, sent or not.
func (c *cargo) clear() {
	if c.pipe != nil && c.left() > 0 {
		c.unpipe()
	}
	c.n, c.sent = 0, 0
	c.release()
}

// release gives back what holds the cargo, which is empty.
func (c *cargo) release() {
	if c.pipe != nil {
		c.pipes.put(c.pipe)
		c.pipe = nil
	}
	if c.buf != nil {
		c.buf.Put()
		c.buf = nil
	}
}

package exchange

import "shaper/buffer"

// output is what a lane has passed on and not written: it is held for more, or the
// receiver has not taken it yet.
type output struct {
	x     *Exchange
	dir   Direction
	held  []byte
	block *buffer.Buffer // where held begins; nil: nowhere, or in memory of its own
}

// MostHeld is how many bytes are held so that they leave together with what follows.
const MostHeld = 16 << 10

// send writes, in one piece if the receiver takes it, behind what that has not taken.
func (o *output) send(p []byte) {
	if len(o.held) > 0 {
		o.held = append(o.held, p...)
		o.flush()
		return
	}
	if n := o.write(p); n < len(p) && !o.x.stopped {
		o.held = append(o.held, p[n:]...)
	}
}

// write writes what the receiver takes, and returns how many bytes that is.
func (o *output) write(p []byte) int {
	n, left := o.dir.Write(p)
	o.x.tell(left)
	return n
}

// hold is send for what no class counts, and which may leave together with what follows
// it in the same turn: a write for each would take longer than all else.
func (o *output) hold(p []byte) {
	if len(o.held)+len(p) > MostHeld {
		o.send(p)
		return
	}
	if o.held == nil {
		o.block = buffer.Get(MostHeld)
		o.held = o.block.Bytes[:0]
	}
	o.held = append(o.held, p...)
}

// flush writes what is held; false if the receiver does not take all of it.
func (o *output) flush() bool {
	if len(o.held) == 0 {
		return true
	}
	n := o.write(o.held)
	if o.x.stopped {
		return false
	}
	o.held = o.held[:copy(o.held, o.held[n:])]
	if len(o.held) > 0 {
		return false
	}
	o.forget()
	return true
}

// forget gives up what is held.
func (o *output) forget() {
	if o.block != nil {
		o.block.Put()
	}
	o.held, o.block = nil, nil
}

// isStuck reports whether the receiver has no room for what is to be written.
func (o *output) isStuck() bool {
	return len(o.held) > 0 && !o.dir.Writable() || o.isFlooded()
}

// isFlooded reports whether more is to be written than is held for the rest of a turn,
// since the receiver does not read.
func (o *output) isFlooded() bool { return len(o.held) > MostHeld && !o.flush() }

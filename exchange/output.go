package exchange

import "shaper/buffer"

// An output holds what a lane has passed on and not written, because more may follow in this
// turn, or because the receiver has no room.
type output struct {
	run   *run
	wire  Direction
	held  []byte
	block *buffer.Buffer // the memory of held at first; nil: held is empty or has grown out of it
}

// MostHeld is how many bytes hold keeps, to be written together with what follows.
const MostHeld = 16 << 10

// send writes p behind what is held, and returns how many bytes of p were written. If the receiver takes all of
// it, that is one write. Until then p is not held: if the write ends the exchange, whoever has p counts it.
func (o *output) send(p []byte) (n int) {
	if before := len(o.held); before > 0 {
		return max(o.writeHeld(append(o.held, p...))-before, 0)
	}
	if n = o.write(p); n < len(p) && !o.run.stopped {
		o.held = append(o.held, p[n:]...)
	}
	return n
}

// write writes as much as the receiver takes, and returns how many bytes that is.
func (o *output) write(p []byte) int {
	n, departed := o.wire.Write(p)
	o.run.noteTime(departed)
	return n
}

// hold is send for bytes that no class counts. They are written together with what follows in
// the same turn; a write for each message would take longer than everything else.
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

// flush writes what is held. It returns false if the receiver does not take all of it.
func (o *output) flush() bool {
	if len(o.held) == 0 {
		return true
	}
	o.writeHeld(o.held)
	return !o.run.stopped && len(o.held) == 0
}

// writeHeld writes all, which begins with what is held, as far as there is room. It holds the rest, and returns how many
// bytes it has written.
func (o *output) writeHeld(all []byte) int {
	n := o.write(all)
	if o.run.stopped {
		return n
	}
	if o.held = all[:copy(all, all[n:])]; len(o.held) == 0 {
		o.forget()
	}
	return n
}

// forget drops what is held.
func (o *output) forget() {
	if o.block != nil {
		o.block.Put()
	}
	o.held, o.block = nil, nil
}

// isStuck reports whether the receiver has no room for what is held.
func (o *output) isStuck() bool {
	return len(o.held) > 0 && !o.wire.Writable() || o.isFlooded()
}

// isFlooded reports whether more than MostHeld is held and the receiver does not take it. It tries
// to write it.
func (o *output) isFlooded() bool { return len(o.held) > MostHeld && !o.flush() }

package exchange

import (
	"io"
	"shaper/buffer"
)

// input is what a lane has read and not passed on.
type input struct {
	buf     *buffer.Buffer // nil: nothing is there
	off, to int            // of buf, the bytes that are there
	plenty  bool           // the last read filled buf
	end     ending
}

// ending is what is known of the end of a stream.
type ending uint8

const (
	open  ending = iota // more may come
	clean               // its sender has ended it
	cut                 // by a fault, or what comes is no message
)

// How much room a read has at least; and how much where the last one took all its room.
// That is more than is held for more, and so is not copied.
const (
	leastRead  = 4 << 10
	plentyRead = 2 * MostHeld
)

// bytes returns what is there.
func (in *input) bytes() []byte {
	if in.buf == nil {
		return nil
	}
	return in.buf.Bytes[in.off:in.to]
}

func (in *input) len() int { return in.to - in.off }

// room returns memory behind what is there, so that at least need bytes fit in all. A
// buffer that is too small is replaced by one twice as large.
func (in *input) room(need int) []byte {
	n := in.len()
	need = max(leastRead, need, n+1)
	if in.plenty {
		need = max(need, plentyRead)
	}
	switch {
	case in.buf == nil:
		in.buf = buffer.Get(need)
	case len(in.buf.Bytes) < need:
		larger := buffer.Get(min(2*need, buffer.Max))
		copy(larger.Bytes, in.bytes())
		in.buf.Put()
		in.buf = larger
	default:
		copy(in.buf.Bytes, in.bytes())
	}
	in.off, in.to = 0, n
	return in.buf.Bytes[n:]
}

// filled notes that n bytes were read into the room.
func (in *input) filled(n int) {
	if n > 0 {
		in.to += n
		in.plenty = in.to == len(in.buf.Bytes)
	}
	in.release()
}

// consume goes on behind n bytes.
func (in *input) consume(n int) {
	in.off += n
	in.release()
}

// release gives the buffer back when nothing is in it.
func (in *input) release() {
	if in.off == in.to {
		in.drop()
	}
}

// drop forgets what is there.
func (in *input) drop() {
	if in.buf != nil {
		in.buf.Put()
	}
	in.buf, in.off, in.to = nil, 0, 0
}

// read reads what is there; false if there is nothing, or no more.
func (l *lane) read() bool {
	if l.in.end != open || !l.dir.Readable() {
		return false
	}
	n, err := l.dir.Read(l.in.room(l.scan.Need()))
	if l.x.stopped {
		return false
	}
	l.in.filled(n)
	switch err {
	case nil:
	case io.EOF:
		l.in.end = clean
	default:
		l.in.end = cut
	}
	return n > 0
}

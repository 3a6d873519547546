package exchange

import (
	"io"

	"shaper/buffer"
)

// An input holds what a lane has read and not passed on.
type input struct {
	run     *run
	wire    Direction
	buf     *buffer.Buffer // nil: there is nothing
	off, to int            // the bytes are buf.Bytes[off:to]
	wasFull bool           // the last read filled buf
	end     ending
}

// An ending says what is known about the end of a stream.
type ending uint8

const (
	open  ending = iota // more may come
	clean               // its sender ended it
	cut                 // a fault ended it, or bytes that cannot be framed
)

// leastRead is the least room for a read, in bytes. plentyRead is the room if the last read
// filled its room. It is above MostHeld, so that output.hold sends it and does not copy it.
const (
	leastRead  = 4 << 10
	plentyRead = 2 * MostHeld
)

// mostRead is how many bytes an input reads at most. The rest is for what insert inserts.
const mostRead = buffer.Max - 128

// bytes returns all bytes of the input.
func (in *input) bytes() []byte {
	if in.buf == nil {
		return nil
	}
	return in.buf.Bytes[in.off:in.to]
}

func (in *input) len() int { return in.to - in.off }

// nextNeed returns for how many bytes to make room, if need bytes are needed in all: twice what is there at
// most. A message has to come before it takes the memory that it says to need.
func (in *input) nextNeed(need int) int { return min(need, max(leastRead, 2*in.len())) }

// room returns the memory behind the bytes of the input, so that at least need bytes fit in
// all, which is at most mostRead. It replaces a buffer that is too small by one of twice the need.
func (in *input) room(need int) []byte {
	n := in.len()
	need = max(leastRead, need, n+1)
	if in.wasFull {
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
	return in.buf.Bytes[n:max(n, min(len(in.buf.Bytes), mostRead))]
}

// filled notes that n bytes were read into the room.
func (in *input) filled(n int) {
	if n > 0 {
		in.to += n
		in.wasFull = in.to == len(in.buf.Bytes)
	}
	in.releaseIfEmpty()
}

// insert inserts a text before byte at.
func (in *input) insert(at int, text string) {
	n := in.len()
	in.room(n + len(text))
	in.to += len(text)
	all := in.bytes()
	copy(all[at+len(text):], all[at:n])
	copy(all[at:], text)
}

// consume removes the first n bytes.
func (in *input) consume(n int) {
	in.off += n
	in.releaseIfEmpty()
}

// releaseIfEmpty gives the buffer back if there are no bytes.
func (in *input) releaseIfEmpty() {
	if in.off == in.to {
		in.drop()
	}
}

// drop removes all bytes.
func (in *input) drop() {
	if in.buf != nil {
		in.buf.Put()
	}
	in.buf, in.off, in.to = nil, 0, 0
}

// read reads what is there, if need bytes are needed in all. It returns false if there is nothing.
func (in *input) read(need int) bool {
	if in.end != open || !in.wire.Readable() {
		return false
	}
	n, err := in.wire.Read(in.room(in.nextNeed(need)))
	if in.run.stopped {
		return false
	}
	in.filled(n)
	switch err {
	case nil:
	case io.EOF:
		in.end = clean
	default:
		in.end = cut
	}
	return n > 0
}

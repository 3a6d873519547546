package exchange

import (
	"shaper/buffer"
	"shaper/frame"
	"shaper/policy"
)

// A payload is the bytes of a message: the whole of it, or its head. They are at the front of the input until own or
// rewrite copies them, which has to come before the input consumes them.
type payload struct {
	in  *input
	buf *buffer.Buffer // the copy; nil: there is none yet
	n   int32          // the number of the bytes
}

// bytes returns the bytes. They are valid until the payload changes or, without a copy, until the input does.
func (p *payload) bytes() []byte {
	if p.buf == nil {
		return p.in.bytes()[:p.n]
	}
	return p.buf.Bytes[:p.n]
}

// own copies the bytes out of the input, unless they are copied.
func (p *payload) own() {
	if p.buf == nil {
		front := p.bytes()
		p.buf = buffer.Get(len(front))
		copy(p.buf.Bytes, front)
	}
}

// rewrite copies a request out of the input, so that it asks for the server of an origin. It has to come before own.
func (p *payload) rewrite(o *frame.Origin) {
	front := p.bytes()
	p.buf = buffer.Get(len(front) + o.Growth())
	p.n = int32(len(o.AppendRequest(p.buf.Bytes[:0], front)))
}

// append adds a piece of the body to the copy, which there has to be.
func (p *payload) append(piece []byte) {
	n := int(p.n) + len(piece)
	if n > len(p.buf.Bytes) {
		larger := buffer.Get(n)
		copy(larger.Bytes, p.bytes())
		p.buf.Put()
		p.buf = larger
	}
	copy(p.buf.Bytes[p.n:], piece)
	p.n = int32(n)
}

// memory returns how many bytes of memory a message takes with its copy, which there has to be.
func (p *payload) memory() int { return messageMemory + len(p.buf.Bytes) }

// holds returns how many bytes of memory a message takes, or will take once its bytes are copied.
func (p *payload) holds() int {
	if p.buf != nil {
		return p.memory()
	}
	return int(policy.Holds(int64(p.n)))
}

// release gives the copy back. The payload must not be used after that: its bytes are gone from the input, too.
func (p *payload) release() {
	if p.buf != nil {
		p.buf.Put()
		p.buf = nil
	}
}

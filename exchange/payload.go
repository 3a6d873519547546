package exchange

import (
	"shaper/buffer"
	"shaper/frame"
	"shaper/policy"
)

// A payload is the bytes of a message: the whole of it, or its head. They are in one place at a time: at the front of
// the input, until own or rewrite takes them out, and then in a copy. So who counts what the input holds counts none twice.
type payload struct {
	in        *input
	buf       *buffer.Buffer // the copy, behind host; nil: the bytes are in the input
	n         int32          // the number of the bytes
	host      uint8          // the length of the host that the client asked for, if rewritten
	rewritten bool           // the bytes ask for the server of an origin
}

// longestHost is the longest host that is kept of a request that is rewritten. No name is longer.
const longestHost = 255

// bytes returns the bytes. They are valid until the payload changes or, without a copy, until the input does.
func (p *payload) bytes() []byte {
	if p.buf == nil {
		return p.in.bytes()[:p.n]
	}
	return p.buf.Bytes[p.host:][:p.n]
}

// own takes the bytes out of the input, unless they are out.
func (p *payload) own() {
	if p.buf == nil {
		front := p.bytes()
		p.buf = buffer.Get(len(front))
		copy(p.buf.Bytes, front)
		p.in.consume(len(front))
	}
}

// rewrite takes a request out of the input, so that it asks for the server of an origin, and keeps the host that
// the client asked for. It has to come before own.
func (p *payload) rewrite(o *frame.Origin, host []byte) {
	front := p.bytes()
	host = host[:min(len(host), longestHost)]
	p.buf = buffer.Get(len(host) + len(front) + o.Growth())
	p.host, p.rewritten = uint8(copy(p.buf.Bytes, host)), true
	p.n = int32(len(o.AppendRequest(p.buf.Bytes[p.host:p.host], front)))
	p.in.consume(len(front))
}

// clientHost returns the host that the client asked for, if the bytes do not say it any more.
func (p *payload) clientHost() (host []byte, kept bool) {
	if !p.rewritten {
		return nil, false
	}
	return p.buf.Bytes[:p.host], true
}

// copied returns how long a copy is that has n more bytes.
func (p *payload) copied(n int) int { return int(p.host) + int(p.n) + n }

// append adds a piece of the body to the copy, which there has to be.
func (p *payload) append(piece []byte) {
	n := p.copied(0)
	if all := p.copied(len(piece)); all > len(p.buf.Bytes) {
		larger := buffer.Get(all)
		copy(larger.Bytes, p.buf.Bytes[:n])
		p.buf.Put()
		p.buf = larger
	}
	copy(p.buf.Bytes[n:], piece)
	p.n += int32(len(piece))
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

// release gives the bytes up, wherever they are. The payload must not be used after that. An exchange that has stopped has
// nothing in its input.
func (p *payload) release() {
	switch {
	case p.buf != nil:
		p.buf.Put()
		p.buf = nil
	case !p.in.run.stopped:
		p.in.consume(int(p.n))
	}
}

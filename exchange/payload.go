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
	buf       *buffer.Buffer // the copy, behind host and field; nil: the bytes are in the input
	n         int32          // the number of the bytes
	host      uint8          // the length of the host that the client asked for, if rewritten
	field     uint8          // the length of what the client wrote in the field Host, if rewritten
	rewritten bool           // the bytes ask for the server of an origin
}

// longestHost is the longest host that is kept of a request that is rewritten, and the longest field. No name is longer.
const longestHost = 255

// bytes returns the bytes. They are valid until the payload changes or, without a copy, until the input does.
func (p *payload) bytes() []byte {
	if p.buf == nil {
		return p.in.bytes()[:p.n]
	}
	return p.buf.Bytes[p.front():][:p.n]
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
// the client asked for, and its field Host. It has to come before own.
func (p *payload) rewrite(o *frame.Origin, host, field []byte) {
	front := p.bytes()
	host, field = host[:min(len(host), longestHost)], field[:min(len(field), longestHost)]
	p.host, p.field, p.rewritten = uint8(len(host)), uint8(len(field)), true
	p.buf = buffer.Get(p.front() + len(front) + o.Growth())
	kept := append(append(p.buf.Bytes[:0], host...), field...)
	p.n = int32(len(o.AppendRequest(kept[p.front():], front)))
	p.in.consume(len(front))
}

// clientHost returns the host that the client asked for, and its field Host, if the bytes do not say them any more.
func (p *payload) clientHost() (host, field []byte, kept bool) {
	if !p.rewritten {
		return nil, nil, false
	}
	return p.buf.Bytes[:p.host], p.buf.Bytes[p.host:p.front()], true
}

// front returns how many bytes stand in the copy before those of the payload.
func (p *payload) front() int { return int(p.host) + int(p.field) }

// copied returns how long a copy is that has n more bytes.
func (p *payload) copied(n int) int { return p.front() + int(p.n) + n }

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

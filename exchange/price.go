package exchange

import (
	"bytes"
	"math"
	"strconv"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// mostPeeked is how many bytes of a body are read to find out what a request costs. With the
// head, they fit into an input.
const mostPeeked = 128 << 10

// A peek reads the body of a request that was found, as far as that is needed to know its cost.
// The body stays in the input, behind the head.
type peek struct {
	lane    *lane
	content *frame.Content
	read    int    // bytes of the body that content has taken
	ended   bool   // these are all
	body    []byte // what they contain, without the framing
}

// prices returns how a class counts the cost of its messages, in messages and in tokens; nil if the
// protocol says it.
func prices(class *shaper.Class) (messages, tokens *policy.Cost) {
	return class.Messages().Cost(unit.Messages), class.Messages().Cost(unit.Tokens)
}

// newPeek returns a peek at the body of the message that was found, if its cost stands there.
// Then the body has to be read before the message enters its class. Otherwise newPeek returns nil.
func newPeek(l *lane) *peek {
	messages, tokens := prices(l.class())
	if messages == nil && tokens == nil || l.found.whole {
		return nil
	}
	m := Seen(&l.found.message)
	needs := func(c *policy.Cost) bool {
		switch {
		case c == nil || m.Header("Expect") != nil: // the client sends the body later, or never
			return false
		case c.JSON != "":
			return isPlain(m.Header("Content-Encoding"))
		}
		return c.Bytes > 0 && m.Header("Content-Length") == nil
	}
	if !needs(messages) && !needs(tokens) {
		return nil
	}
	content := frame.NewContent(l.scan)
	if content == nil {
		return nil
	}
	return &peek{lane: l, content: content}
}

// isPlain reports whether a Content-Encoding changes nothing.
func isPlain(encoding []byte) bool {
	return len(encoding) == 0 || bytes.EqualFold(encoding, []byte("identity"))
}

// goOn reads the body as far as it is there. It returns false if more has to come before the
// cost is known.
func (p *peek) goOn() bool {
	l := p.lane
	for !p.ended && p.read < mostPeeked {
		body := l.found.body()
		n, _, ended := p.content.Next(body[p.read:min(len(body), mostPeeked)])
		if p.read, p.ended = p.read+n, ended; n > 0 {
			continue
		}
		if p.content.IsBroken() || len(body) >= mostPeeked { // the line of a chunk stands across the bound
			break
		}
		if !l.in.read(l.scan.Need()) && (l.in.end == open || l.x.stopped) {
			return false
		} else if l.in.end != open {
			break // the rest never comes, or cannot be framed
		}
	}
	l.found.reread(l.x.link)
	p.collect(frame.NewContent(l.scan), l.found.body()[:p.read])
	l.state = handling
	return true
}

// collect keeps what the bytes of a body contain.
func (p *peek) collect(content *frame.Content, raw []byte) {
	for len(raw) > 0 {
		n, data, _ := content.Next(raw)
		if n == 0 {
			return
		}
		p.body, raw = append(p.body, data...), raw[n:]
	}
}

// charge sets what the message costs in a class. each is its cost in messages by the protocol.
func (f *found) charge(p protocol, class *shaper.Class, each int64) {
	b := bill{protocol: p, message: &f.message, bytes: f.bytes(), whole: f.whole, peek: f.peek, said: f.said}
	cost := b.cost(class, each)
	f.message.Cost, f.tokens, f.said = cost.Messages, cost.Tokens, b.said
}

// A bill is all that tells what a message costs.
type bill struct {
	protocol protocol
	message  *frame.Message
	bytes    []byte // of the message, or of its head
	whole    bool   // bytes are all of it
	peek     *peek  // at its body; nil: nobody reads that, or it is gone
	said     said   // by its body, to this class or to one before
}

// cost returns what the message costs in a class. each is the cost in messages by the protocol:
// the number of destinations.
func (b *bill) cost(class *shaper.Class, each int64) shaper.Cost {
	messages, tokens := prices(class)
	cost := shaper.Cost{Messages: each}
	if messages != nil {
		cost.Messages = each * b.by(messages, &b.said.messages)
	}
	if tokens != nil {
		cost.Tokens = int32(min(each*b.by(tokens, &b.said.tokens), math.MaxInt32))
	}
	return cost
}

// by returns the cost of one message. If the body of the message says the cost, by notes the cost in said.
// If the body is gone, the cost in said counts.
func (b *bill) by(c *policy.Cost, said *int64) int64 {
	switch described := b.message.Described; {
	case c.Units > 0:
		return c.Units
	case c.Bytes > 0:
		return b.inBytes(c)
	case described != nil:
		return c.Of(described.Units, described.Units > 0)
	case c.Segments:
		return c.Of(frame.Segments(b.bytes), true)
	case c.Header != "":
		m := Seen(b.message)
		n, ok := policy.Number(string(m.Header(c.Header)))
		return c.Of(n, ok)
	case b.peek != nil:
		*said = 0
		if n, ok := firstNumber(b.peek.body, string(c.JSON)); ok {
			*said = max(n, 1)
		}
	}
	return c.Of(*said, *said > 0)
}

// inBytes returns the cost of the bytes of a message: in HTTP those of its body. If nobody knows
// how long a body is, the cost is at least that of what was read.
func (b *bill) inBytes(c *policy.Cost) int64 {
	if d := b.message.Described; d != nil {
		return c.InBytes(d.Bytes)
	}
	if !b.protocol.isHTTP() {
		return c.InBytes(int64(len(b.bytes)))
	}
	if p := b.peek; p != nil && p.ended {
		return c.InBytes(int64(len(p.body)))
	}
	m := Seen(b.message)
	length, err := strconv.ParseInt(string(m.Header("Content-Length")), 10, 64)
	switch {
	case err == nil, b.whole:
		return c.InBytes(length)
	case b.peek != nil:
		return max(c.InBytes(int64(len(b.peek.body))), c.Of(0, false))
	}
	return c.Of(0, false)
}

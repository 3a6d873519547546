package simulate

import (
	"time"

	"shaper/exchange"
	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
)

// An inbox is one direction of a link: it holds messages that are described and not written
// out. It is the frame.Scanner of that direction, and needs no bytes to find them.
type inbox struct {
	link        *link
	first, last *message // messages that the exchange has not found, in order
	unread      int64    // bytes that the exchange has not read
	found       *message // the message that was found last
	body        int64    // bytes of its body that the scanner has not returned
	need        int
	framed      frame.Message
	described   frame.Description // of framed
	lastFields  policy.Fields     // those of the last message that had any
	lastMessage *policy.Message   // lastFields as rules see them
}

// isEmpty reports whether the exchange has found everything.
func (b *inbox) isEmpty() bool { return b.first == nil && b.unread == 0 && b.body == 0 }

func (b *inbox) push(p *message) {
	if b.first == nil {
		b.first = p
	} else {
		b.last.next = p
	}
	b.last = p
	b.unread += p.bytes
}

// take takes the first message out.
func (b *inbox) take() *message {
	p := b.first
	b.first, p.next = p.next, nil
	return p
}

// Next implements frame.Scanner.
func (b *inbox) Next(p []byte) (int, frame.Event, error) {
	if b.body > 0 {
		return b.nextOfBody(len(p))
	}
	if b.first == nil || len(p) < b.first.size {
		if b.need = 1; b.first != nil {
			b.need = b.first.size
		}
		return 0, frame.More, nil
	}
	one := b.take()
	b.found, b.body = one, one.bytes-int64(one.size)
	b.describe(one)
	if b.body > 0 {
		return one.size, frame.Head, nil
	}
	return one.size, frame.Whole, nil
}

func (b *inbox) nextOfBody(n int) (int, frame.Event, error) {
	if n == 0 {
		b.need = 1
		return 0, frame.More, nil
	}
	n = int(min(int64(n), b.body))
	if b.body -= int64(n); b.body == 0 {
		return n, frame.End, nil
	}
	return n, frame.Body, nil
}

// describe sets framed to what is known of a message.
func (b *inbox) describe(p *message) {
	b.described = frame.Description{Units: p.says, Bytes: p.bytes}
	b.framed = frame.Message{Kind: frame.Counted, Cost: p.messages, Refusable: !p.returns && b.link.protocol.Refuses(), Described: &b.described}
	if p.fields.IsZero() {
		return
	}
	if b.lastMessage == nil || p.fields != b.lastFields {
		b.lastFields, b.lastMessage = p.fields, p.fields.Message()
	}
	m, s := &b.framed, b.lastMessage
	m.Path, m.Method, m.Host, m.Fields, m.SystemID = s.Path, s.Method, s.Host, s.Headers, s.SystemID
	b.described.Submit = frame.Submit{SourceAddr: s.SourceAddr, Recipient: s.Recipient, DataCoding: s.DataCoding, ESMClass: s.ESMClass}
}

// Message implements frame.Scanner.
func (b *inbox) Message() *frame.Message { return &b.framed }

// Need implements frame.Scanner.
func (b *inbox) Need() int { return b.need }

// Opaque implements frame.Scanner.
func (b *inbox) Opaque() int64 { return 0 }

// Skip implements frame.Scanner.
func (b *inbox) Skip(int64) frame.Event { panic("simulate: a message that is described was skipped") }

// End implements frame.Scanner.
func (b *inbox) End([]byte) (frame.Event, error) { return frame.More, nil }

// A wire is the exchange.Direction of an inbox. What is written to it vanishes.
type wire inbox

// Readable implements exchange.Direction.
func (w *wire) Readable() bool { return w.unread > 0 }

// Read implements exchange.Direction.
func (w *wire) Read(p []byte) (int, error) {
	n := min(int64(len(p)), w.unread)
	w.unread -= n
	return int(n), nil
}

// Writable implements exchange.Direction.
func (w *wire) Writable() bool { return true }

// Write implements exchange.Direction.
func (w *wire) Write(p []byte) (int, time.Time) { return len(p), w.link.run.now }

// Shut implements exchange.Direction.
func (w *wire) Shut() bool { return false }

// End implements exchange.Direction.
func (w *wire) End() {}

// Break implements exchange.Direction.
func (w *wire) Break(err error) { panic(err) }

// Sent implements exchange.Direction. The report counts messages itself.
func (w *wire) Sent(*shaper.Class, shaper.Cost) {}

// A provider is the frame.Link of a link. Each message counts as answered when it has left, so
// nothing is ever in flight.
type provider struct{ *link }

// Up implements frame.Link.
func (p provider) Up() frame.Scanner { return &p.up }

// Down implements frame.Link.
func (p provider) Down() frame.Scanner { return &p.down }

// Read implements frame.Link. No policy changes in a simulation, so nothing is read again.
func (provider) Read([]byte, *frame.Message) {}

// Room implements frame.Link.
func (provider) Room() bool { return true }

// Sent implements frame.Link.
func (provider) Sent(*frame.Message, time.Time) {}

// Again implements frame.Link.
func (provider) Again() {}

// Refuse implements frame.Link.
func (provider) Refuse(*frame.Message, bool) bool { return true }

// Due implements frame.Link.
func (provider) Due() (m frame.Message, ok bool) { return m, false }

// AppendRefusal implements frame.Link.
func (provider) AppendRefusal(dst []byte, _ *frame.Message, _ frame.Refusal) []byte { return dst }

// InFlight implements frame.Link.
func (provider) InFlight() int { return 0 }

// Expire implements frame.Link.
func (provider) Expire(time.Time, func(uint16)) {}

// Drop implements frame.Link.
func (provider) Drop(func(uint16)) {}

var _ exchange.Direction = (*wire)(nil)

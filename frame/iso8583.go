package frame

import (
	"encoding/binary"
	"fmt"
)

// A Prefix is how the length before each ISO 8583 message is written.
type Prefix string

const (
	// Binary2 is two bytes, big-endian.
	Binary2 Prefix = "binary2"
	// ASCII4 is four ASCII digits.
	ASCII4 Prefix = "ascii4"
	// BCD2 is four digits in two bytes.
	BCD2 Prefix = "bcd2"
	// VML is Visa's message length header: two bytes, big-endian, and two reserved bytes that
	// pass unchanged.
	VML Prefix = "vml"
)

// size returns the length of the prefix in bytes.
func (p Prefix) size() int {
	if p == ASCII4 || p == VML {
		return 4
	}
	return 2
}

// most returns the largest length that the prefix can express.
func (p Prefix) most() int {
	if p == ASCII4 || p == BCD2 {
		return 9999
	}
	return 1<<16 - 1
}

// length reads the length from b; false if b is not a number.
func (p Prefix) length(b []byte) (n int, ok bool) {
	switch p {
	case ASCII4:
		for _, c := range b[:4] {
			if c < '0' || c > '9' {
				return 0, false
			}
			n = n*10 + int(c-'0')
		}
		return n, true
	case BCD2:
		for _, c := range b[:2] {
			if c>>4 > 9 || c&15 > 9 {
				return 0, false
			}
			n = n*100 + int(c>>4)*10 + int(c&15)
		}
		return n, true
	}
	return int(binary.BigEndian.Uint16(b)), true
}

func (s Settings) checkPrefix() error {
	switch s.Prefix {
	case Binary2, ASCII4, BCD2, VML:
	default:
		return fmt.Errorf("frame: %q is not a length prefix of ISO 8583", s.Prefix)
	}
	if most := s.Prefix.most(); s.Header < 0 || s.Header > most {
		return fmt.Errorf("frame: a header of %d bytes does not fit in a message of at most %d", s.Header, most)
	}
	return nil
}

func newISO8583(s Settings) *silent {
	f := &iso8583{prefix: s.Prefix, header: s.Header}
	f.before = s.Prefix.size()
	if s.IncludesPrefix {
		f.included = f.before
	}
	return &silent{up: gatherer{protocol: ISO8583, format: f}, down: gatherer{protocol: ISO8583, format: f}}
}

// iso8583 is the format of messages with a length before them.
type iso8583 struct {
	prefix   Prefix
	before   int // bytes of the prefix
	included int // bytes of the prefix that the length counts: all or none
	header   int // bytes between the prefix and the message type
}

func (f *iso8583) length(p []byte) (int, Reason) {
	if len(p) < f.before {
		return f.before, fine
	}
	n, ok := f.prefix.length(p)
	if !ok || n < f.included {
		return 0, BadLength
	}
	return f.before - f.included + n, fine
}

func (f *iso8583) describe(p []byte, m *Message) {
	body := p[f.before:]
	*m = Message{Kind: Counted, Cost: 1}
	if len(body) == 0 { // an empty message keeps a link open
		*m = Message{Kind: Control}
		return
	}
	if len(body) < f.header {
		return
	}
	class, function, ok := messageType(body[f.header:])
	switch {
	case !ok:
	case function%2 == 1: // a response or an acknowledgement
		*m = Message{Kind: Response}
	case class == 8:
		*m = Message{Kind: Control}
	}
}

// messageType reads the message type indicator, and returns its two middle digits: the class
// and the function. It returns false if b begins with none. The indicator has four digits, in
// ASCII, in EBCDIC, or in BCD (two bytes). The first digit is the version: 0 to 2, or 8 and 9
// for national and private use. So the first byte tells the code: in BCD it would be version 3
// if it were an ASCII digit, and version 15 if it were an EBCDIC digit.
func messageType(b []byte) (class, function byte, ok bool) {
	if len(b) < 2 {
		return 0, 0, false
	}
	if zone := b[0] & 0xf0; len(b) >= 4 && (zone == '0' || zone == 0xf0) {
		for _, c := range b[:4] {
			if c&0xf0 != zone || c&15 > 9 {
				return 0, 0, false
			}
		}
		return b[1] & 15, b[2] & 15, true
	}
	if version := b[0] >> 4; version > 2 && version != 8 && version != 9 || b[0]&15 > 9 || b[1]>>4 > 9 || b[1]&15 > 9 {
		return 0, 0, false
	}
	return b[0] & 15, b[1] >> 4, true
}

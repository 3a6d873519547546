package frame

import "bytes"

// Bounds of what is gathered of HTTP, in bytes.
const (
	maxHead      = 64 << 10
	maxChunkLine = 256

	// MaxSwallow is the longest body, in bytes, that is read and thrown away after a refusal.
	// If a Content-Length is above it, the connection ends instead. The length of a chunked
	// body is not known before: the connection ends when the body exceeds it.
	MaxSwallow = 1 << 20
)

// A phase says what the next byte of a stream belongs to.
type phase uint8

const (
	atHead      phase = iota
	inFixed           // a body with a length
	atChunkLine       // the line with the size of a chunk
	inChunk           // the data of a chunk
	atChunkEnd        // the CRLF behind the data of a chunk
	inTrailer         // the fields behind the last chunk
	untilEnd          // a body that ends with the stream
	inTunnel          // what follows an upgrade or a CONNECT
)

// A stream scans one direction of HTTP: heads, and bodies between them.
type stream struct {
	phase     phase
	remaining int64
	offset    int64
	seen      int // bytes that gather has searched
	line      int // where the last line begins, in what gather has searched
	need      int
	message   Message
}

func (s *stream) Message() *Message { return &s.message }
func (s *stream) Need() int         { return s.need }

func (s *stream) wrong(r Reason, at int) (int, Event, error) {
	return 0, More, &Error{HTTP, r, s.offset + int64(at)}
}

func (s *stream) more(p []byte) (int, Event, error) {
	s.need = len(p) + 1
	return 0, More, nil
}

// gather looks for the empty line that ends fields, and returns the length with that line; 0
// if it has not come yet.
func (s *stream) gather(p []byte) (n int, _ Reason, at int) {
	for {
		i := bytes.IndexByte(p[s.seen:], '\n')
		if i < 0 {
			s.seen = len(p)
			if len(p) >= maxHead {
				return 0, HeadTooLarge, maxHead
			}
			return 0, fine, 0
		}
		end := s.seen + i
		switch {
		case end >= maxHead:
			return 0, HeadTooLarge, maxHead
		case end == s.line || p[end-1] != '\r':
			return 0, BareLF, end
		case end-1 == s.line:
			s.seen, s.line = 0, 0
			return end + 1, fine, 0
		}
		s.seen, s.line = end+1, end+1
	}
}

// enter goes on after a head of n bytes. bodied says that a body follows.
func (s *stream) enter(n int, h *head, bodied bool) Event {
	s.offset += int64(n)
	switch {
	case !bodied:
		return Whole
	case h.chunked:
		s.phase = atChunkLine
	case h.length == unknown:
		s.phase = untilEnd
	default:
		s.phase, s.remaining = inFixed, h.length
	}
	return Head
}

// body takes as much as p has of a body or a tunnel.
func (s *stream) body(p []byte) (n int, ev Event, err error) {
	if s.phase == inTunnel {
		s.offset += int64(len(p))
		return len(p), Tunnel, nil
	}
	for n < len(p) {
		k, reason, at := s.bodyPart(p[n:])
		if reason != fine && n == 0 {
			return s.wrong(reason, at)
		}
		if reason != fine || k == 0 {
			break
		}
		if n += k; s.phase == atHead {
			s.offset += int64(n)
			return n, End, nil
		}
	}
	if n == 0 {
		return s.more(p)
	}
	s.offset += int64(n)
	return n, Body, nil
}

// bodyPart takes what belongs to the current phase from the front of p; n is 0 if p is too
// short to tell. When the body ends, the phase becomes atHead.
func (s *stream) bodyPart(p []byte) (n int, _ Reason, at int) {
	switch s.phase {
	case inFixed, inChunk:
		n := min(s.remaining, int64(len(p)))
		s.pass(n)
		return int(n), fine, 0
	case atChunkLine:
		return s.chunkLine(p)
	case atChunkEnd:
		if p[0] != '\r' || len(p) > 1 && p[1] != '\n' {
			return 0, BadChunk, 0
		}
		if len(p) == 1 {
			return 0, fine, 0
		}
		s.phase = atChunkLine
		return 2, fine, 0
	case inTrailer:
		return s.trailer(p)
	}
	return len(p), fine, 0
}

// pass notes that n of the remaining bytes have passed.
func (s *stream) pass(n int64) {
	if s.remaining -= n; s.remaining > 0 {
		return
	}
	if s.phase == inChunk {
		s.phase = atChunkEnd
	} else {
		s.phase = atHead
	}
}

// chunkLine takes the line with the size of a chunk and its extensions (RFC 9112, 7.1).
func (s *stream) chunkLine(p []byte) (n int, _ Reason, at int) {
	i := bytes.IndexByte(p[:min(len(p), maxChunkLine)], '\n')
	switch {
	case i < 0 && len(p) >= maxChunkLine:
		return 0, BadChunk, 0
	case i < 0:
		return 0, fine, 0
	case i == 0 || p[i-1] != '\r':
		return 0, BareLF, i
	}
	size, ok := chunkSize(p[:i-1])
	if !ok {
		return 0, BadChunk, 0
	}
	if s.phase, s.remaining = inChunk, size; size == 0 {
		s.phase = inTrailer
	}
	return i + 1, fine, 0
}

// chunkSize reads up to 15 hexadecimal digits. It skips extensions, which must not have
// control characters.
func chunkSize(line []byte) (size int64, ok bool) {
	digits := 0
	for digits < len(line) && line[digits] != ';' {
		v := hexDigit(line[digits])
		if v < 0 || digits == 15 {
			return 0, false
		}
		size = size<<4 | int64(v)
		digits++
	}
	return size, digits > 0 && badValue(line[digits:]) < 0
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// trailer takes the fields behind the last chunk. Fields that would frame the message are not
// allowed there (RFC 9110, 6.5.1).
func (s *stream) trailer(p []byte) (n int, _ Reason, at int) {
	n, reason, at := s.gather(p)
	if reason != fine || n == 0 {
		return 0, reason, at
	}
	h := head{length: unknown}
	if reason, at := h.fields(p[:n], 0); reason != fine {
		return 0, reason, at
	}
	if h.length != unknown || h.chunked || h.hosts > 0 {
		return 0, BadField, 0
	}
	s.phase = atHead
	return n, fine, 0
}

func (s *stream) opaque() int64 {
	switch s.phase {
	case inFixed, inChunk:
		return s.remaining
	case untilEnd, inTunnel:
		return Endless
	}
	return 0
}

func (s *stream) skip(n int64) Event {
	if n > s.opaque() {
		panic("frame: more was skipped than is opaque")
	}
	s.offset += n
	switch s.phase {
	case inTunnel:
		return Tunnel
	case inFixed, inChunk:
		if s.pass(n); s.phase == atHead {
			return End
		}
	}
	return Body
}

// End implements Scanner.
func (s *stream) End(p []byte) (Event, error) {
	switch {
	case s.phase == untilEnd:
		s.phase = atHead
		return End, nil
	case s.phase == inTunnel, s.phase == atHead && len(p) == 0:
		return More, nil
	}
	return More, &Error{HTTP, CutShort, s.offset + int64(len(p))}
}

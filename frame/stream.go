package frame

import "bytes"

// Bounds of what is gathered of HTTP, and of what it is worth to throw away.
const (
	maxHead      = 64 << 10
	maxChunkLine = 256

	// MaxSwallow is the longest body of known length that is read and thrown
	// away behind a refusal rather than ending the connection. One in chunks is
	// not known to be longer before it is; a session may end then.
	MaxSwallow = 1 << 20
)

// A phase is where in the stream the next byte is.
type phase uint8

const (
	atHead      phase = iota
	inFixed           // in a body of which so many bytes are left
	atChunkLine       // at the size of a chunk
	inChunk           // in its data, of which so many bytes are left
	atChunkEnd        // at the CRLF behind it
	inTrailer         // behind the last chunk
	toTheEnd          // in a body that ends with the stream
	inTunnel          // behind an upgrade or a CONNECT
)

// A stream is one direction of HTTP: heads, and bodies between them.
type stream struct {
	phase   phase
	left    int64
	offset  int64
	seen    int // of what is gathered, bytes that were looked at
	line    int // of what is gathered, where the last line begins
	need    int
	message Message
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

// gather looks for the empty line that ends fields; n is 0 where it has not
// come yet.
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

// enter goes on behind a head of n bytes, to the body if there is one.
func (s *stream) enter(n int, h *head, bodied bool) Event {
	s.offset += int64(n)
	switch {
	case !bodied:
		return Whole
	case h.chunked:
		s.phase = atChunkLine
	case h.length == unknown:
		s.phase = toTheEnd
	default:
		s.phase, s.left = inFixed, h.length
	}
	return Head
}

// body takes as much as there is of a body, or of a tunnel.
func (s *stream) body(p []byte) (n int, ev Event, err error) {
	if s.phase == inTunnel {
		s.offset += int64(len(p))
		return len(p), Tunnel, nil
	}
	for n < len(p) {
		k, reason, at := s.part(p[n:])
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

// part takes what p begins with in the phase, which may be nothing yet. When
// the body has ended it is atHead.
func (s *stream) part(p []byte) (n int, _ Reason, at int) {
	switch s.phase {
	case inFixed, inChunk:
		n := min(s.left, int64(len(p)))
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

// pass takes bytes of which so many are left.
func (s *stream) pass(n int64) {
	if s.left -= n; s.left > 0 {
		return
	}
	if s.phase == inChunk {
		s.phase = atChunkEnd
	} else {
		s.phase = atHead
	}
}

// chunkLine takes the size of a chunk and its extensions (RFC 9112, 7.1).
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
	if s.phase, s.left = inChunk, size; size == 0 {
		s.phase = inTrailer
	}
	return i + 1, fine, 0
}

// chunkSize reads up to 15 hexadecimal digits, and passes over extensions
// without control characters.
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

// trailer takes the fields behind the last chunk. Those that frame have no
// business there (RFC 9110, 6.5.1).
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
		return s.left
	case toTheEnd, inTunnel:
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
	case s.phase == toTheEnd:
		s.phase = atHead
		return End, nil
	case s.phase == inTunnel, s.phase == atHead && len(p) == 0:
		return More, nil
	}
	return More, &Error{HTTP, CutShort, s.offset + int64(len(p))}
}

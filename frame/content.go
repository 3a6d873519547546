package frame

// A Content finds what a body of HTTP contains, as its bytes come: it leaves out the lines with
// the sizes of chunks, and trailers. It changes no scanner.
type Content struct {
	stream stream
	broken bool
}

// NewContent returns the Content of the body of the message that a scanner has found last, as a
// Head. It returns nil if the protocol is not HTTP.
func NewContent(s Scanner) *Content {
	switch s := s.(type) {
	case *httpRequests:
		return s.content()
	case *httpResponses:
		return s.content()
	}
	return nil
}

func (s *stream) content() *Content {
	return &Content{stream: stream{phase: s.phase, remaining: s.remaining}}
}

// Next takes the first part of p, which begins where the last part ended. It returns how many
// bytes that is, and what they contain. n is 0 if more bytes are needed, and if the body is
// broken. ended says that the body ends with the part.
func (c *Content) Next(p []byte) (n int, content []byte, ended bool) {
	if len(p) == 0 {
		return 0, nil, false
	}
	s := &c.stream
	data := s.phase == inFixed || s.phase == inChunk || s.phase == untilEnd
	n, reason, _ := s.bodyPart(p)
	if reason != fine {
		c.broken = true
		return 0, nil, false
	}
	if data {
		content = p[:n]
	}
	return n, content, s.phase == atHead
}

// IsBroken reports whether nobody can tell where the body goes on.
func (c *Content) IsBroken() bool { return c.broken }

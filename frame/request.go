package frame

// maxBlanks is how many empty lines may stand before a request. RFC 9112, 2.2, wants one to be ignored at
// least: old clients send one behind a body, and its length does not count it.
const maxBlanks = 2

// httpRequests scans what the client sends.
type httpRequests struct {
	stream
	link      *httpLink
	last      pending // the request whose head was found last
	undecided bool    // that request is neither sent nor refused yet
	closed    bool    // a refusal ends the connection, so no further request is found
	blanks    int     // empty lines since that request
}

// decide returns the request whose head was found last, which is now sent or refused.
func (u *httpRequests) decide() pending {
	if !u.undecided {
		panic("frame: there is no request to send or refuse")
	}
	u.undecided = false
	return u.last
}

// held reports whether the scanner has to wait: for Sent or Refuse, or for the other
// direction.
func (u *httpRequests) held() bool {
	if u.link.tunneled && u.phase == atHead {
		u.phase = inTunnel
	}
	return u.undecided || u.closed || u.phase == atHead && (u.link.leaving || u.link.pipeline.n == maxPipelined)
}

func (u *httpRequests) Next(p []byte) (int, Event, error) {
	switch {
	case len(p) == 0:
		return u.more(p)
	case u.held():
		return 0, Hold, nil
	case u.phase != atHead:
		return u.body(p)
	case !isToken[p[0]]:
		return u.blank(p)
	}
	n, reason, at := u.gather(p)
	if reason != fine {
		return u.wrong(reason, at)
	}
	if n == 0 {
		return u.more(p)
	}
	h := head{length: unknown}
	if reason, at := h.parseRequest(p[:n]); reason != fine {
		return u.wrong(reason, at)
	}
	return n, u.describe(p[:n], &h), nil
}

// blank takes an empty line before a request. Whatever else is no method is an error now, without waiting for
// the rest of the head.
func (u *httpRequests) blank(p []byte) (int, Event, error) {
	switch {
	case p[0] == '\n':
		return u.wrong(BareLF, 0)
	case p[0] != '\r', len(p) > 1 && p[1] != '\n', u.blanks == maxBlanks:
		return u.wrong(BadStart, 0)
	case len(p) == 1:
		return u.more(p)
	}
	u.blanks++
	u.offset += 2
	return 2, Blank, nil
}

// describe sets the message to what the head p of a request says.
func (u *httpRequests) describe(p []byte, h *head) Event {
	m := &u.message
	m.describeRequest(p, h)
	u.undecided, u.last, u.blanks = true, 0, 0
	switch {
	case string(h.method) == "HEAD":
		u.last = isHEAD
	case string(h.method) == "CONNECT":
		u.last = isCONNECT
	}
	if h.upgrade {
		u.last |= asksUpgrade
	}
	bodied := h.chunked || h.length > 0
	m.Close = h.close || h.minor == 0 || bodied && h.expects || h.length > MaxSwallow
	m.Repeatable = !m.Close && u.last&leaves == 0
	return u.enter(len(p), h, bodied)
}

// CloseAfterRefusal ends the connection after the refusal of the request whose body is passing: it is
// longer than MaxSwallow, which its head has not said. No further request is found. It reports whether
// the refusal was written before. It is for scanners of HTTP that the client feeds.
func CloseAfterRefusal(s Scanner) (written bool) {
	u, ok := s.(*httpRequests)
	if !ok {
		return false
	}
	u.closed = true
	return !u.link.pipeline.closeLast()
}

// Opaque implements Scanner: nothing may pass while the scanner holds.
func (u *httpRequests) Opaque() int64 {
	if u.held() {
		return 0
	}
	return u.opaque()
}

func (u *httpRequests) Skip(n int64) Event { return u.skip(n) }

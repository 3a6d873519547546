package frame

// httpRequests scans what the client sends.
type httpRequests struct {
	stream
	link      *httpLink
	last      pending // of which the head was found last
	undecided bool    // whether that one is sent or refused
	closed    bool    // the last one was refused, and nothing behind it counts
}

// decide says that the last head is sent or refused.
func (u *httpRequests) decide() pending {
	if !u.undecided {
		panic("frame: there is no request to send or refuse")
	}
	u.undecided = false
	return u.last
}

// held reports whether what comes has to wait for the other direction.
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
	case !token[p[0]]: // not worth waiting for more
		return u.wrong(BadStart, 0)
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
	return n, u.began(n, &h), nil
}

// began tells of a request.
func (u *httpRequests) began(n int, h *head) Event {
	m := &u.message
	*m = Message{Kind: Counted, Cost: 1, Refusable: true, Method: h.method, Host: hostOf(h.host)}
	m.describeTarget(h.target)
	u.undecided, u.last = true, 0
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
	return u.enter(n, h, bodied)
}

// Opaque implements Scanner: what is held may not pass.
func (u *httpRequests) Opaque() int64 {
	if u.held() {
		return 0
	}
	return u.opaque()
}

func (u *httpRequests) Skip(n int64) Event { return u.skip(n) }

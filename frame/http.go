package frame

import "time"

// An httpLink is a connection of HTTP/1.1: requests one way, responses in the
// same order the other.
type httpLink struct {
	up   httpRequests
	down httpResponses

	// unanswered are the requests that were sent or refused and whose answer
	// has not ended, oldest first.
	unanswered [maxPipelined]pending
	first, n   int
	inFlight   int // of those, sent

	asked    bool // a request to leave HTTP was sent and not answered
	tunneled bool // it was granted: what comes is HTTP no more
}

// maxPipelined bounds the requests that are sent and not answered. Then the next
// one is not read.
const maxPipelined = 64

// pending is what is remembered of a request until it is answered.
type pending uint8

const (
	isHEAD pending = 1 << iota
	isCONNECT
	asksUpgrade
	isRefused
	isClose // behind its refusal the connection ends
)

// leaves are those that may end HTTP on this connection.
const leaves = isCONNECT | asksUpgrade

func newHTTP() *httpLink {
	l := &httpLink{}
	l.up.link, l.down.link = l, l
	return l
}

func (l *httpLink) Up() Scanner   { return &l.up }
func (l *httpLink) Down() Scanner { return &l.down }

// Room implements Link: the bound is kept by reading no request beyond it.
func (l *httpLink) Room() bool { return true }

func (l *httpLink) InFlight() int        { return l.inFlight }
func (l *httpLink) Expire(time.Time) int { return 0 }

func (l *httpLink) Sent(*Message, time.Time) {
	r := l.up.decide()
	l.push(r)
	l.inFlight++
	l.asked = r&leaves != 0
}

func (l *httpLink) Refuse(m *Message) bool {
	r := l.up.decide() | isRefused
	if m.Close {
		r |= isClose
		l.up.closed = true
	}
	if l.n == 0 && l.down.phase == atHead {
		return true
	}
	l.push(r)
	return false
}

func (l *httpLink) Due() (m Message, ok bool) {
	r, any := l.front()
	if !any || r&isRefused == 0 || l.down.phase != atHead {
		return m, false
	}
	l.pop()
	return Message{Kind: Counted, Cost: 1, Refusable: true, Close: r&isClose != 0}, true
}

func (l *httpLink) push(r pending) {
	if l.n == maxPipelined {
		panic("frame: a request without room")
	}
	l.unanswered[(l.first+l.n)%maxPipelined] = r
	l.n++
}

// front returns the request whose answer is next.
func (l *httpLink) front() (r pending, ok bool) {
	if l.n == 0 {
		return 0, false
	}
	return l.unanswered[l.first], true
}

func (l *httpLink) pop() {
	if l.unanswered[l.first]&isRefused == 0 {
		l.inFlight--
	}
	l.first = (l.first + 1) % maxPipelined
	l.n--
}

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
	return u.undecided || u.closed || u.phase == atHead && (u.link.asked || u.link.n == maxPipelined)
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

// httpResponses scans what the provider sends.
type httpResponses struct {
	stream
	link      *httpLink
	answering bool // the response that began is the answer to the first request
}

func (d *httpResponses) Next(p []byte) (int, Event, error) {
	switch {
	case len(p) == 0:
		return d.more(p)
	case d.phase != atHead:
		n, ev, err := d.body(p)
		return n, d.ended(ev), err
	}
	asked, any := d.link.front()
	switch {
	case asked&isRefused != 0: // the turn is ours
		return 0, Hold, nil
	case p[0] != 'H':
		return d.wrong(BadStart, 0)
	}
	n, reason, at := d.gather(p)
	if reason != fine {
		return d.wrong(reason, at)
	}
	if n == 0 {
		return d.more(p)
	}
	h := head{length: unknown}
	if reason, at := h.parseResponse(p[:n]); reason != fine {
		return d.wrong(reason, at)
	}
	if reason := d.leavesHTTP(&h, asked); reason != fine {
		return d.wrong(reason, 0)
	}
	return n, d.began(n, &h, asked, any), nil
}

// leavesHTTP decides whether the connection goes on in HTTP.
func (d *httpResponses) leavesHTTP(h *head, asked pending) Reason {
	switch {
	case h.status == 101 && asked&asksUpgrade == 0:
		return BadUpgrade
	case h.status == 101 && h.toHTTP2:
		return HTTP2
	case h.status == 101, asked&isCONNECT != 0 && h.status/100 == 2:
		d.link.tunneled = true
	}
	return fine
}

// began tells of a response to a request (RFC 9112, 6.3); any is false where
// there is none, such as for the 408 of a server that has waited too long.
func (d *httpResponses) began(n int, h *head, asked pending, any bool) Event {
	final := h.status/100 != 1 || h.status == 101
	d.answering = final && any
	d.message = Message{Kind: Response, Status: h.status, Answers: d.answering, Throttle: h.throttle()}
	if final && asked&leaves != 0 {
		d.link.asked = false
	}
	switch {
	case d.link.tunneled:
		d.enter(n, h, false)
		d.phase = inTunnel
		return d.ended(Whole)
	case !final, h.status == 204, h.status == 304, asked&isHEAD != 0:
		return d.ended(d.enter(n, h, false))
	}
	return d.ended(d.enter(n, h, h.chunked || h.length != 0))
}

// ended takes note of the end of an answer.
func (d *httpResponses) ended(ev Event) Event {
	if (ev == Whole || ev == End) && d.answering {
		d.answering = false
		d.link.pop()
	}
	return ev
}

func (d *httpResponses) Opaque() int64      { return d.opaque() }
func (d *httpResponses) Skip(n int64) Event { return d.ended(d.skip(n)) }

// End implements Scanner: a response without a length ends here.
func (d *httpResponses) End(p []byte) (Event, error) {
	ev, err := d.stream.End(p)
	return d.ended(ev), err
}

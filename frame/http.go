package frame

import (
	"bytes"
	"time"
)

// endOfHead ends a head: its last line, and an empty one.
var endOfHead = []byte("\r\n\r\n")

// An httpLink is an HTTP/1.1 connection. Requests go up, and their responses come down in the
// same order.
type httpLink struct {
	up       httpRequests
	down     httpResponses
	pipeline pipeline

	leaving  bool // a request to leave HTTP was sent and has no answer yet
	tunneled bool // the provider agreed: what follows is not HTTP
}

func newHTTP() *httpLink {
	l := &httpLink{}
	l.up.link, l.down.link = l, l
	return l
}

func (l *httpLink) Up() Scanner   { return &l.up }
func (l *httpLink) Down() Scanner { return &l.down }

// Read implements Link.
func (l *httpLink) Read(p []byte, m *Message) {
	p = p[:bytes.Index(p, endOfHead)+len(endOfHead)]
	h := head{length: unknown}
	h.parseRequest(p) // it was right before
	m.describeRequest(p, &h)
}

// Room implements Link. Up holds while the pipeline is full, so there always is room.
func (l *httpLink) Room() bool { return true }

func (l *httpLink) InFlight() int                  { return l.pipeline.inFlight }
func (l *httpLink) Expire(time.Time, func(uint16)) {}

func (l *httpLink) Drop(gone func(tag uint16)) {
	for l.pipeline.n > 0 {
		if r, tag := l.pipeline.front(); r&isRefused == 0 {
			gone(tag)
		}
		l.pipeline.pop()
	}
	l.down.answering = false
}

func (l *httpLink) Sent(m *Message, _ time.Time) {
	r := l.up.decide()
	l.pipeline.push(r, m.Tag)
	l.leaving = r&leaves != 0
}

// Again implements Link: Up holds as it does from the head of a request on.
func (l *httpLink) Again() { l.up.undecided = true }

func (l *httpLink) Refuse(m *Message, whole bool) bool {
	r := l.up.decide() | isRefused
	if m.Close {
		r |= isClose
		l.up.closed = true
	}
	if whole && l.pipeline.n == 0 && l.down.mayRefuse() {
		return true
	}
	l.pipeline.push(r, m.Tag)
	return false
}

func (l *httpLink) Due() (m Message, ok bool) {
	r, tag := l.pipeline.front()
	if r&isRefused == 0 || !l.down.mayRefuse() {
		return m, false
	}
	m = Message{Kind: Counted, Cost: 1, Refusable: true, Close: r&isClose != 0, Tag: tag}
	l.pipeline.pop()
	return m, true
}

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
	tags       [maxPipelined]uint16
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

func (l *httpLink) InFlight() int                  { return l.inFlight }
func (l *httpLink) Expire(time.Time, func(uint16)) {}

func (l *httpLink) Drop(gone func(tag uint16)) {
	for l.n > 0 {
		if l.unanswered[l.first]&isRefused == 0 {
			gone(l.tags[l.first])
		}
		l.pop()
	}
	l.down.answering = false
}

func (l *httpLink) Sent(m *Message, _ time.Time) {
	r := l.up.decide()
	l.push(r, m.Tag)
	l.inFlight++
	l.asked = r&leaves != 0
}

func (l *httpLink) Refuse(m *Message, whole bool) bool {
	r := l.up.decide() | isRefused
	if m.Close {
		r |= isClose
		l.up.closed = true
	}
	if whole && l.n == 0 && l.down.phase == atHead {
		return true
	}
	l.push(r, m.Tag)
	return false
}

func (l *httpLink) Due() (m Message, ok bool) {
	r, ok := l.front()
	if !ok || r&isRefused == 0 || l.down.phase != atHead {
		return m, false
	}
	m = Message{Kind: Counted, Cost: 1, Refusable: true, Close: r&isClose != 0, Tag: l.tags[l.first]}
	l.pop()
	return m, true
}

func (l *httpLink) push(r pending, tag uint16) {
	if l.n == maxPipelined {
		panic("frame: a request without room")
	}
	last := (l.first + l.n) % maxPipelined
	l.unanswered[last], l.tags[last] = r, tag
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

package frame

// httpResponses scans what the provider sends.
type httpResponses struct {
	stream
	link      *httpLink
	answering bool // the current response answers the oldest request of the pipeline
	over      bool // a response has ended with the stream: what follows would belong to its body
}

func (d *httpResponses) Next(p []byte) (int, Event, error) {
	switch {
	case len(p) == 0:
		return d.more(p)
	case d.phase != atHead:
		n, ev, err := d.body(p)
		return n, d.ended(ev), err
	}
	asked, tag := d.link.pipeline.front()
	switch {
	case asked&isRefused != 0: // our refusal comes first
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
	if reason := d.checkLeaving(&h, asked); reason != fine {
		return d.wrong(reason, 0)
	}
	return n, d.describe(p[:n], &h, asked, tag), nil
}

// checkLeaving decides whether a response ends HTTP on this connection. It returns an error if
// the response may not.
func (d *httpResponses) checkLeaving(h *head, asked pending) Reason {
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

// describe sets the message to what the head of a response says (RFC 9112, 6.3). asked and tag
// are those of the oldest request. There may be none: a server that has waited too long sends
// a 408 without a request.
func (d *httpResponses) describe(p []byte, h *head, asked pending, tag uint16) Event {
	final := h.status/100 != 1 || h.status == 101
	d.answering = final && d.link.pipeline.n > 0
	d.message = Message{Kind: Response, Status: h.status, Answers: d.answering, Tunnel: d.link.tunneled, Throttle: HTTPThrottle(h.status, h.retryAfter), Fields: fieldLines(p)}
	d.message.Last = final && (!d.answering || d.link.tunneled || !h.persists(asked))
	if d.answering {
		d.message.Tag = tag
		d.message.Ends = d.message.Last || !h.isBodiless(asked) && h.length > MaxSwallow
		d.message.Throttle.Refused = h.status == 429
	}
	if final && asked&leaves != 0 {
		d.link.leaving = false
	}
	switch {
	case d.link.tunneled:
		d.enter(len(p), h, false)
		d.phase = inTunnel
		return d.ended(Whole)
	case !final, h.isBodiless(asked):
		return d.ended(d.enter(len(p), h, false))
	}
	return d.ended(d.enter(len(p), h, h.chunked || h.length != 0))
}

// persists reports whether the connection goes on after a response to a request.
func (h *head) persists(asked pending) bool {
	return !h.close && h.minor > 0 && (h.chunked || h.isBodiless(asked) || h.length != unknown)
}

// isBodiless reports whether a response to a request has no body, whatever its fields say.
func (h *head) isBodiless(asked pending) bool {
	return h.status == 204 || h.status == 304 || asked&isHEAD != 0
}

// mayRefuse reports whether a refusal may follow what the provider has sent.
func (d *httpResponses) mayRefuse() bool { return d.phase == atHead && !d.over }

// ended removes the request from the pipeline if ev ends its response.
func (d *httpResponses) ended(ev Event) Event {
	if (ev == Whole || ev == End) && d.answering {
		d.answering = false
		d.link.pipeline.pop()
	}
	return ev
}

func (d *httpResponses) Opaque() int64      { return d.opaque() }
func (d *httpResponses) Skip(n int64) Event { return d.ended(d.skip(n)) }

// Abandon gives up the response whose body is passing, so that refusals may follow. The result says
// that it is too long. It is for scanners of HTTP that the provider feeds.
func Abandon(s Scanner) error {
	d, ok := s.(*httpResponses)
	if !ok {
		return nil
	}
	d.phase = atHead
	d.ended(End)
	return &Error{HTTP, TooLong, d.offset}
}

// End implements Scanner: a response without a length ends with the stream.
func (d *httpResponses) End(p []byte) (Event, error) {
	ev, err := d.stream.End(p)
	d.over = d.over || ev == End
	return d.ended(ev), err
}

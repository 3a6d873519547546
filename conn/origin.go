package conn

import (
	"shaper/frame"
	"shaper/policy"
)

// originOf returns the server that requests ask for which are sent to an upstream; nil
// where they leave as the client has written them.
func originOf(conf *policy.Listener, upstream string) *frame.Origin {
	host := conf.HostFor(upstream)
	if host == "" {
		return nil
	}
	scheme := "http"
	if conf.UpstreamTLS != nil {
		scheme = "https"
	}
	o := frame.NewOrigin(scheme, host)
	return &o
}

// outgoing returns the bytes of the message that was found as they are to leave. If
// they are not those that were read, they lie in room, which the caller puts back.
func (l *lane) outgoing() (p []byte, room *buffer) {
	p = l.unread()[:l.size]
	o := l.x.origin
	if o == nil || !l.isUp() {
		return p, nil
	}
	room = getBuffer(len(p) + o.Growth())
	return o.AppendRequest(room.bytes[:0], p), room
}

// redirect has the response that was found lead the client back here, where it would
// lead to the upstream.
func (l *lane) redirect() {
	if o := l.x.origin; o != nil {
		n := len(o.Redirect(l.unread()[:l.size]))
		l.off += l.size - n
		l.size = n
	}
}

package conn

import (
	"shaper/buffer"
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

// rewrite lets a request ask for a server other than the client has written.
func (m *waitingMessage) rewrite(o *frame.Origin) {
	p := m.bytes()
	m.buf = buffer.Get(len(p) + o.Growth())
	m.n = len(o.AppendRequest(m.buf.Bytes[:0], p))
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

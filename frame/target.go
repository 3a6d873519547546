package frame

import "bytes"

// describeRequest sets what rules see of the head p of a request, and that it counts.
func (m *Message) describeRequest(p []byte, h *head) {
	*m = Message{Kind: Counted, Cost: 1, Refusable: true, Method: h.method, Host: hostOf(h.host), Fields: fieldLines(p)}
	m.describeTarget(h.target)
}

// describeTarget sets path and host from the target of a request (RFC 9112, 3.2).
func (m *Message) describeTarget(target []byte) {
	if string(m.Method) == "CONNECT" {
		m.Host = hostOf(target)
		return
	}
	if i := bytes.Index(target, []byte("://")); i > 0 && target[0] != '/' {
		authority := target[i+3:]
		end := bytes.IndexAny(authority, "/?")
		if end < 0 {
			end = len(authority)
		}
		authority, target = authority[:end], authority[end:]
		m.Host = hostOf(authority[bytes.LastIndexByte(authority, '@')+1:])
	}
	m.Path, _, _ = bytes.Cut(target, []byte("?"))
	if len(m.Path) == 0 {
		m.Path = root
	}
}

// root is the path of a target that has none.
var root = []byte("/")

// hostOf returns an authority without its port.
func hostOf(authority []byte) []byte {
	i := bytes.LastIndexByte(authority, ':')
	if i < 0 || bytes.IndexByte(authority[i:], ']') >= 0 {
		return authority
	}
	return authority[:i]
}

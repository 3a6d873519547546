package frame

import (
	"bytes"
	"strings"
)

// An Origin is a server as a URI names it: by scheme and authority (RFC 9110, 4.3.1). A client
// of a proxy asks for the proxy, and the server behind it expects requests for itself. So
// heads are rewritten for the Origin of that server. The zero Origin stands for none.
type Origin struct {
	scheme     string // "http" or "https"
	host, port string
	authority  string // as the Host field has it
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// NewOrigin returns the origin of a scheme, "http" or "https", and an authority: "host",
// "host:port" or "[address]:port". Host leaves out the default port of the scheme, as clients
// do (RFC 9110, 4.2.3).
func NewOrigin(scheme, authority string) Origin {
	o := Origin{scheme: scheme, authority: authority}
	o.host, o.port = splitPort(authority)
	if o.port == "" {
		o.port = defaultPorts[scheme]
	}
	if o.port == defaultPorts[scheme] {
		o.authority = o.host
	}
	return o
}

// Authority returns the value of Host.
func (o *Origin) Authority() string { return o.authority }

// splitPort splits an authority into host and port; port is "" if there is none.
func splitPort(authority string) (host, port string) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || strings.IndexByte(authority[i:], ']') >= 0 {
		return authority, ""
	}
	return authority[:i], authority[i+1:]
}

// Growth returns how many bytes AppendRequest adds at most.
func (o *Origin) Growth() int { return 2*len(o.authority) + len("Host: \r\n") + len(o.scheme) }

// AppendRequest appends the head of a request, rewritten so that it asks for the origin. The
// head is one that a scanner has found. Host becomes the authority of the origin. If the
// target is an http or https URI, its scheme and authority become those of the origin. An
// HTTP/1.0 request without Host gets one; an HTTP/1.1 request without Host is invalid and
// stays so. CONNECT stays unchanged, because its target is where a proxy is to connect. All
// other bytes stay the same. AppendRequest allocates only if dst has no room.
func (o *Origin) AppendRequest(dst, head []byte) []byte {
	if bytes.HasPrefix(head, []byte("CONNECT ")) {
		return append(dst, head...)
	}
	end := bytes.IndexByte(head, '\n') + 1
	dst = o.appendRequestLine(dst, head[:end])
	from, to, found := findField(head, end, "host")
	switch {
	case found:
		dst = append(dst, head[end:from]...)
		dst = append(dst, o.authority...)
		return append(dst, head[to:]...)
	case head[end-3] == '0': // HTTP/1.0
		dst = append(dst, "Host: "...)
		dst = append(dst, o.authority...)
		dst = append(dst, "\r\n"...)
	}
	return append(dst, head[end:]...)
}

// appendRequestLine appends a request line, and replaces scheme and authority of its target if
// it has them.
func (o *Origin) appendRequestLine(dst, line []byte) []byte {
	from := bytes.IndexByte(line, ' ') + 1
	target := line[from:bytes.LastIndexByte(line, ' ')]
	scheme, rest, _ := bytes.Cut(target, []byte("://"))
	authority := authorityOf(rest)
	user := bytes.LastIndexByte(authority, '@') + 1
	if !equalsLower(scheme, "http") && !equalsLower(scheme, "https") || len(authority) == user {
		return append(dst, line...)
	}
	dst = append(dst, line[:from]...)
	dst = append(dst, o.scheme...)
	dst = append(dst, "://"...)
	dst = append(dst, authority[:user]...)
	dst = append(dst, o.authority...)
	return append(dst, line[from+len(scheme)+len("://")+len(authority):]...)
}

// authorityOf returns the authority that text begins with.
func authorityOf(text []byte) []byte {
	if end := bytes.IndexAny(text, "/?#"); end >= 0 {
		return text[:end]
	}
	return text
}

// Redirect makes the redirects in the head of a response lead back through the proxy. If a
// Location names the origin, only its path remains; the client resolves that against the
// server it has asked (RFC 9110, 10.2.2). Redirect changes head in place, and returns the new
// head, which ends where the old one did. All other bytes stay the same.
func (o *Origin) Redirect(head []byte) []byte {
	if status := string(head[9:12]); status[0] != '3' && status != "201" {
		return head
	}
	at := bytes.IndexByte(head, '\n') + 1
	for {
		from, to, found := findField(head, at, "location")
		if !found {
			return head
		}
		keep, before := from, ""
		if n, own := o.names(head[from:to]); own {
			keep, before = from+n, pathPrefix(head[from+n:to])
		}
		cut := keep - from - len(before)
		copy(head[cut:], head[:from])
		copy(head[from+cut:], before)
		head = head[cut:]
		at = to - cut
	}
}

// names reports whether a reference begins with the origin, and the length of that beginning.
func (o *Origin) names(ref []byte) (n int, own bool) {
	if len(ref) > len(o.scheme) && equalsLower(ref[:len(o.scheme)], o.scheme) && ref[len(o.scheme)] == ':' {
		n = len(o.scheme) + 1
	}
	if !bytes.HasPrefix(ref[n:], []byte("//")) {
		return 0, false
	}
	authority := authorityOf(ref[n+2:])
	host, port := hostOf(authority), []byte(nil)
	if len(host) < len(authority) {
		port = authority[len(host)+1:]
	}
	if !bytes.EqualFold(host, []byte(o.host)) || string(port) != o.port && (len(port) > 0 || o.port != defaultPorts[o.scheme]) {
		return 0, false
	}
	return n + 2 + len(authority), true
}

// pathPrefix returns what must precede the rest of a reference to make it a path on the same
// server. A reference with two slashes at its front names another server; clients read a
// backslash as a slash, and ignore a tab.
func pathPrefix(rest []byte) string {
	switch {
	case len(rest) == 0 || rest[0] != '/':
		return "/"
	case len(rest) > 1 && bytes.IndexByte([]byte("/\\\t"), rest[1]) >= 0:
		return "/."
	}
	return ""
}

// findField returns where the value of the first field with a name begins and ends, without
// the space around it. It searches the lines of head from the position at on.
func findField(head []byte, at int, name string) (from, to int, found bool) {
	for at < len(head)-2 {
		end := at + bytes.IndexByte(head[at:], '\n')
		line := head[at:end]
		if colon := len(name); len(line) > colon && line[colon] == ':' && equalsLower(line[:colon], name) {
			value := bytes.TrimLeft(line[colon+1:], " \t")
			from = end - len(value)
			return from, from + len(bytes.TrimRight(value, " \t\r")), true
		}
		at = end + 1
	}
	return 0, 0, false
}

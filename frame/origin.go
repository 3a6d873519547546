package frame

import (
	"bytes"
	"strings"
)

// An Origin is a server as a URI names it: its scheme and its authority (RFC 9110,
// 4.3.1). A client asks for the server that it knows, which is a proxy; behind it the
// requests have to ask for the server that they reach. The zero Origin is none.
type Origin struct {
	scheme     string // "http" or "https"
	host, port string
	authority  string // as Host has it
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// NewOrigin returns the origin of a scheme, "http" or "https", and of "host",
// "host:port" or "[address]:port". The port that the scheme has anyway is left out of
// Host, as clients do (RFC 9110, 4.2.3).
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

// Authority returns what Host is set to.
func (o *Origin) Authority() string { return o.authority }

// splitPort returns the port of an authority; "" where it has none.
func splitPort(authority string) (host, port string) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || strings.IndexByte(authority[i:], ']') >= 0 {
		return authority, ""
	}
	return authority[:i], authority[i+1:]
}

// Growth is how many bytes AppendRequest adds at most.
func (o *Origin) Growth() int { return 2*len(o.authority) + len("Host: \r\n") + len(o.scheme) }

// AppendRequest appends the head of a request, as a scanner has found it, as one to the
// origin. Host is that of the origin; so are scheme and authority of a target that is a
// URI of http or https. HTTP/1.0 without Host gets one, HTTP/1.1
// without one is wrong and stays so. CONNECT names where a proxy is to connect to, and
// stays as it is. All other bytes stay the same. It allocates only if dst has no room.
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

// appendRequestLine appends a request line, with the target in its form.
func (o *Origin) appendRequestLine(dst, line []byte) []byte {
	from := bytes.IndexByte(line, ' ') + 1
	target := line[from:bytes.LastIndexByte(line, ' ')]
	scheme, rest, _ := bytes.Cut(target, []byte("://"))
	authority := authorityOf(rest)
	user := bytes.LastIndexByte(authority, '@') + 1
	if !is(scheme, "http") && !is(scheme, "https") || len(authority) == user {
		return append(dst, line...)
	}
	dst = append(dst, line[:from]...)
	dst = append(dst, o.scheme...)
	dst = append(dst, "://"...)
	dst = append(dst, authority[:user]...)
	dst = append(dst, o.authority...)
	return append(dst, line[from+len(scheme)+len("://")+len(authority):]...)
}

// authorityOf returns the authority that a text begins with.
func authorityOf(text []byte) []byte {
	if end := bytes.IndexAny(text, "/?#"); end >= 0 {
		return text[:end]
	}
	return text
}

// Redirect has the redirects in the head of a response lead back through the proxy: of a
// Location that names the origin only the path is left, which the client takes from
// where it has asked (RFC 9110, 10.2.2). It returns what is left of the head, which it
// changes in place: its end stays where it was. All other bytes stay the same.
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
		left, before := from, ""
		if n, own := o.names(head[from:to]); own {
			left, before = from+n, pathPrefix(head[from+n:to])
		}
		cut := left - from - len(before)
		copy(head[cut:], head[:from])
		copy(head[from+cut:], before)
		head = head[cut:]
		at = to - cut
	}
}

// names reports whether a reference begins with the origin, and with how many bytes.
func (o *Origin) names(ref []byte) (n int, own bool) {
	if len(ref) > len(o.scheme) && is(ref[:len(o.scheme)], o.scheme) && ref[len(o.scheme)] == ':' {
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

// pathPrefix returns what has to stand before the rest of a reference for it to be a
// path of the same server. What begins with two slashes would name another one; clients
// take a backslash for a slash, and leave out a tab.
func pathPrefix(rest []byte) string {
	switch {
	case len(rest) == 0 || rest[0] != '/':
		return "/"
	case len(rest) > 1 && bytes.IndexByte([]byte("/\\\t"), rest[1]) >= 0:
		return "/."
	}
	return ""
}

// findField finds the value of the first field of a name in the lines of a head from at
// on, without the space around it.
func findField(head []byte, at int, name string) (from, to int, found bool) {
	for at < len(head)-2 {
		end := at + bytes.IndexByte(head[at:], '\n')
		line := head[at:end]
		if colon := len(name); len(line) > colon && line[colon] == ':' && is(line[:colon], name) {
			value := bytes.TrimLeft(line[colon+1:], " \t")
			from = end - len(value)
			return from, from + len(bytes.TrimRight(value, " \t\r")), true
		}
		at = end + 1
	}
	return 0, 0, false
}

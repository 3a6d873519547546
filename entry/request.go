package entry

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// A request is the head of a request to an HTTP proxy.
type request struct {
	method, target, version string
	fields                  []field // without those that concern only the proxy
	login                   string  // Proxy-Authorization
	hasBody                 bool
}

// A field is one of a head.
type field struct{ name, line string } // the name in lower case, the line as it is

// hopByHop are the fields that concern only the connection to the proxy (RFC 9110, 7.6.1), and
// Host, which forward writes anew.
var hopByHop = []string{"connection", "proxy-connection", "keep-alive", "te", "upgrade", "proxy-authorization", "proxy-authenticate", "host"}

// parseRequest reads a head without its empty line. It is strict: servers must not be able to read
// it in another way.
func parseRequest(head string) (*request, error) {
	lines := strings.Split(head, "\r\n")
	parts := strings.Split(lines[0], " ")
	if len(parts) != 3 || parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" || strings.Contains(head, "\x00") || hasBareEnds(lines) {
		return nil, errNotHTTP
	}
	r := &request{method: parts[0], target: parts[1], version: parts[2]}
	named := slices.Clone(hopByHop)
	seen := map[string]bool{}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, errAmbiguous
		}
		f, value := field{strings.ToLower(name), line}, strings.Trim(value, " \t")
		if isSingle(f.name) && seen[f.name] {
			return nil, errAmbiguous
		}
		seen[f.name] = true
		switch f.name {
		case "proxy-authorization":
			r.login = value
		case "connection", "proxy-connection":
			for option := range strings.SplitSeq(strings.ToLower(value), ",") {
				named = append(named, strings.Trim(option, " \t"))
			}
		case "content-length":
			r.hasBody = r.hasBody || value != "0"
		case "transfer-encoding":
			r.hasBody = true
		}
		r.fields = append(r.fields, f)
	}
	if seen["transfer-encoding"] && (seen["content-length"] || r.version == "HTTP/1.0") || slices.ContainsFunc(named[len(hopByHop):], frames) {
		return nil, errAmbiguous
	}
	r.fields = slices.DeleteFunc(r.fields, func(f field) bool { return slices.Contains(named, f.name) })
	return r, nil
}

// isSingle reports whether a field must not come twice.
func isSingle(name string) bool {
	return name == "proxy-authorization" || name == "host" || frames(name)
}

// frames reports whether a field says where the message ends.
func frames(name string) bool { return name == "content-length" || name == "transfer-encoding" }

// hasBareEnds reports whether a line contains a CR or an LF alone, which servers read in different
// ways, or is folded (RFC 9112, 5.2).
func hasBareEnds(lines []string) bool {
	for _, line := range lines {
		if strings.ContainsAny(line, "\r\n") || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			return true
		}
	}
	return false
}

// tunnel returns where a request with the method CONNECT leads. It has no body.
func (r *request) tunnel() (d Destination, err error) {
	if r.hasBody {
		return d, errAmbiguous
	}
	d, ok := authorityOf(r.target)
	if !ok {
		return d, errAuthority
	}
	return d, nil
}

// forward returns where a request with a URL leads, and its head as that server gets it: with the
// path only, and for one request, since the next one may be for another server.
func (r *request) forward() (d Destination, head []byte, err error) {
	const scheme = "http://"
	if len(r.target) < len(scheme) || !strings.EqualFold(r.target[:len(scheme)], scheme) {
		return d, nil, errURL
	}
	rest := r.target[len(scheme):]
	host, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	to := host
	if !strings.Contains(host[strings.LastIndexByte(host, ']')+1:], ":") {
		to += ":80"
	}
	d, ok := authorityOf(to)
	if !ok || strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '#' }) {
		return Destination{}, nil, errURL
	}
	switch {
	case path == "" && r.method == "OPTIONS":
		path = "*"
	case !strings.HasPrefix(path, "/"):
		path = "/" + path
	}
	lines := []string{r.method + " " + path + " " + r.version, "Host: " + host}
	for _, f := range r.fields {
		lines = append(lines, f.line)
	}
	lines = append(lines, "Via: "+strings.TrimPrefix(r.version, "HTTP/")+" shaper", "Connection: close", "", "")
	return d, []byte(strings.Join(lines, "\r\n")), nil
}

// authorityOf reads "host:port".
func authorityOf(s string) (d Destination, ok bool) {
	host, port, err := net.SplitHostPort(s)
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil || strconv.FormatUint(n, 10) != port {
		return d, false
	}
	isIPv6 := strings.Contains(host, ":")
	if isIPv6 != strings.HasPrefix(s, "[") {
		return d, false
	}
	return DestinationOf(host, uint16(n))
}

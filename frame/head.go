package frame

import "bytes"

// unknown is the length of a body of which no Content-Length tells.
const unknown = -1

// A head is what is looked at of the head of a request or a response.
type head struct {
	method, target []byte
	status         int
	minor          byte // of the version: HTTP/1.0 or 1.1

	host       []byte
	hosts      int
	length     int64 // Content-Length, or unknown
	lengthText []byte
	chunked    bool
	close      bool // Connection: close
	expects    bool // 100-continue
	upgrade    bool
	toHTTP2    bool // the upgrade names h2c
	retryAfter []byte
}

// token are the characters of methods and names (RFC 9110, 5.6.2), and value
// those of what fields say: no control character but the tab.
var token, value = func() (token, value [256]bool) {
	for c := range 256 {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' && c < 0x80
		token[c] = letter || '0' <= c && c <= '9' || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0
		value[c] = c >= 0x20 && c != 0x7f || c == '\t'
	}
	return token, value
}()

// badValue returns where the first character stands that no value has, else -1.
func badValue(text []byte) int {
	for i, c := range text {
		if !value[c] {
			return i
		}
	}
	return -1
}

// fault says what is wrong with a value.
func fault(text []byte, other Reason) Reason {
	if i := badValue(text); i < 0 {
		return fine
	} else if text[i] == '\r' {
		return BareCR
	}
	return other
}

// parseRequest reads a head that ends with its empty line, and whose lines all end
// with CRLF. It returns what is wrong and where.
func (h *head) parseRequest(p []byte) (Reason, int) {
	end := bytes.IndexByte(p, '\n')
	if reason := h.requestLine(p[:end-1]); reason != fine {
		return reason, 0
	}
	if reason, at := h.fields(p, end+1); reason != fine {
		return reason, at
	}
	switch {
	case h.hosts > 1:
		return BadHost, 0
	case string(h.method) == "CONNECT" && (h.chunked || h.length > 0):
		return BadLength, 0
	}
	return h.lengths()
}

func (h *head) requestLine(line []byte) Reason {
	if string(line) == "PRI * HTTP/2.0" {
		return HTTP2
	}
	i := bytes.IndexByte(line, ' ')
	j := bytes.LastIndexByte(line, ' ')
	if i <= 0 || j <= i+1 || !h.version(line[j+1:]) {
		return BadStart
	}
	h.method, h.target = line[:i], line[i+1:j]
	for _, c := range h.method {
		if !token[c] {
			return BadStart
		}
	}
	for _, c := range h.target {
		if c <= ' ' || c == 0x7f {
			return BadStart
		}
	}
	return fine
}

func (h *head) version(text []byte) bool {
	if len(text) != 8 || string(text[:7]) != "HTTP/1." {
		return false
	}
	h.minor = text[7] - '0'
	return h.minor <= 1
}

// parseResponse is parseRequest for a response.
func (h *head) parseResponse(p []byte) (Reason, int) {
	end := bytes.IndexByte(p, '\n')
	if reason := h.statusLine(p[:end-1]); reason != fine {
		return reason, 0
	}
	if reason, at := h.fields(p, end+1); reason != fine {
		return reason, at
	}
	return h.lengths()
}

// statusLine reads HTTP/1.1 200 OK. Many leave out the phrase, and with it the
// space before it.
func (h *head) statusLine(line []byte) Reason {
	if len(line) < 12 || !h.version(line[:8]) || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return BadStart
	}
	status, ok := decimal(line[9:12])
	if !ok || status < 100 {
		return BadStart
	}
	h.status = int(status)
	return fault(line[12:], BadStart)
}

// fields reads the lines from at on, up to the empty one at the end of p.
func (h *head) fields(p []byte, at int) (Reason, int) {
	for at < len(p)-2 {
		end := at + bytes.IndexByte(p[at:], '\n')
		if reason := h.field(p[at : end-1]); reason != fine {
			return reason, at
		}
		at = end + 1
	}
	return fine, 0
}

func (h *head) field(line []byte) Reason {
	if line[0] == ' ' || line[0] == '\t' {
		return ObsFold
	}
	i := 0
	for i < len(line) && token[line[i]] {
		i++
	}
	if i == 0 || i == len(line) || line[i] != ':' {
		return BadField
	}
	if reason := fault(line[i+1:], BadField); reason != fine {
		return reason
	}
	return h.known(line[:i], bytes.Trim(line[i+1:], " \t"))
}

// known takes note of the fields that matter here.
func (h *head) known(name, value []byte) Reason {
	switch {
	case is(name, "host"):
		h.host = value
		h.hosts++
	case is(name, "content-length"):
		return h.contentLength(value)
	case is(name, "transfer-encoding"):
		if h.chunked || !is(value, "chunked") {
			return BadEncoding
		}
		h.chunked = true
	case is(name, "connection"):
		h.close = h.close || lists(value, "close")
	case is(name, "upgrade"):
		h.upgrade = true
		h.toHTTP2 = h.toHTTP2 || lists(value, "h2c") || lists(value, "http/2.0") || lists(value, "h2")
	case is(name, "expect"):
		h.expects = true
	case is(name, "retry-after"):
		h.retryAfter = value
	}
	return fine
}

// contentLength takes one that is repeated as it is, which some servers do.
func (h *head) contentLength(text []byte) Reason {
	n, ok := decimal(text)
	switch {
	case !ok:
		return BadLength
	case h.length != unknown && !bytes.Equal(text, h.lengthText):
		return BothLengths
	}
	h.length, h.lengthText = n, text
	return fine
}

// lengths judges what the fields say together.
func (h *head) lengths() (Reason, int) {
	switch {
	case h.chunked && h.minor == 0:
		return BadEncoding, 0
	case h.chunked && h.length != unknown:
		return BothLengths, 0
	}
	return fine, 0
}

// is compares what has only visible characters with a lower-case name.
func is(text []byte, name string) bool {
	if len(text) != len(name) {
		return false
	}
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != name[i] {
			return false
		}
	}
	return true
}

// lists reports whether a list between commas has a name.
func lists(list []byte, name string) bool {
	for len(list) > 0 {
		var one []byte
		one, list, _ = bytes.Cut(list, []byte(","))
		if is(bytes.Trim(one, " \t"), name) {
			return true
		}
	}
	return false
}

// decimal reads up to 18 digits, and nothing else.
func decimal(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

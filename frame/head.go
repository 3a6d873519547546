package frame

import "bytes"

// unknown is the length of a body if no Content-Length gives it.
const unknown = -1

// A head holds what the head of a request or a response says.
type head struct {
	method, target []byte
	status         int
	minor          byte // of HTTP/1.0 or HTTP/1.1

	host       []byte
	hosts      int
	length     int64 // Content-Length, or unknown
	lengthText []byte
	chunked    bool
	close      bool // Connection: close
	expects    bool // Expect: 100-continue
	upgrade    bool
	toHTTP2    bool // the upgrade is to HTTP/2
	retryAfter []byte
}

// isToken tells the characters of methods and field names (RFC 9110, 5.6.2). inValue tells
// those of field values: all but control characters, with the tab allowed.
var isToken, inValue = func() (isToken, inValue [256]bool) {
	for c := range 256 {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' && c < 0x80
		isToken[c] = letter || '0' <= c && c <= '9' || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0
		inValue[c] = c >= 0x20 && c != 0x7f || c == '\t'
	}
	return isToken, inValue
}()

// badValue returns the position of the first character that no value may have; -1 if there is
// none.
func badValue(text []byte) int {
	for i, c := range text {
		if !inValue[c] {
			return i
		}
	}
	return -1
}

// valueFault returns why text cannot be a value: BareCR, or other for another character; fine
// if it can.
func valueFault(text []byte, other Reason) Reason {
	if i := badValue(text); i < 0 {
		return fine
	} else if text[i] == '\r' {
		return BareCR
	}
	return other
}

// parseRequest reads the head of a request. All lines end with CRLF, and the last one is
// empty. It returns what is wrong, and where.
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
		if !isToken[c] {
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

// parseResponse reads the head of a response; see parseRequest.
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

// statusLine reads a line like HTTP/1.1 200 OK. Many servers leave out the phrase, and the
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
	return valueFault(line[12:], BadStart)
}

// fields reads the lines of p from the position at up to the empty line.
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

// fieldLines returns the lines of the fields of a head, which has been read.
func fieldLines(head []byte) []byte { return head[bytes.IndexByte(head, '\n')+1:] }

func (h *head) field(line []byte) Reason {
	if line[0] == ' ' || line[0] == '\t' {
		return ObsFold
	}
	i := 0
	for i < len(line) && isToken[line[i]] {
		i++
	}
	if i == 0 || i == len(line) || line[i] != ':' {
		return BadField
	}
	if reason := valueFault(line[i+1:], BadField); reason != fine {
		return reason
	}
	return h.note(line[:i], bytes.Trim(line[i+1:], " \t"))
}

// note keeps the value of a field that matters here.
func (h *head) note(name, value []byte) Reason {
	switch {
	case equalsLower(name, "host"):
		h.host = value
		h.hosts++
	case equalsLower(name, "content-length"):
		return h.contentLength(value)
	case equalsLower(name, "transfer-encoding"):
		if h.chunked || !equalsLower(value, "chunked") {
			return BadEncoding
		}
		h.chunked = true
	case equalsLower(name, "connection"):
		h.close = h.close || listHas(value, "close")
	case equalsLower(name, "upgrade"):
		h.upgrade = true
		h.toHTTP2 = h.toHTTP2 || listHas(value, "h2c") || listHas(value, "http/2.0") || listHas(value, "h2")
	case equalsLower(name, "expect"):
		h.expects = true
	case equalsLower(name, "retry-after"):
		h.retryAfter = value
	}
	return fine
}

// contentLength accepts a second Content-Length if it is the same; some servers send that.
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

// lengths checks what the fields say together about the body.
func (h *head) lengths() (Reason, int) {
	switch {
	case h.chunked && h.minor == 0:
		return BadEncoding, 0
	case h.chunked && h.length != unknown:
		return BothLengths, 0
	}
	return fine, 0
}

// equalsLower reports whether text equals a lower-case name, whatever the case of its letters.
func equalsLower(text []byte, name string) bool {
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

// listHas reports whether a comma-separated list has a name.
func listHas(list []byte, name string) bool {
	for len(list) > 0 {
		var one []byte
		one, list, _ = bytes.Cut(list, []byte(","))
		if equalsLower(bytes.Trim(one, " \t"), name) {
			return true
		}
	}
	return false
}

// decimal reads a number of up to 18 digits; false for anything else.
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

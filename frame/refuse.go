package frame

import (
	"math"
	"strconv"
	"time"
)

// AppendRefusal implements Link: it appends a 429 without a body, which is valid for HEAD too.
// Seconds are rounded up, so that a client that waits for them does not come too early. A wait that never ends has no field.
func (l *httpLink) AppendRefusal(dst []byte, m *Message, r Refusal) []byte {
	wait, ends := max(seconds(r.Wait), 1), r.Wait < math.MaxInt64
	dst = append(dst, "HTTP/1.1 429 Too Many Requests"...)
	if ends {
		dst = appendNumber(dst, "Retry-After", wait)
	}
	if r.Policy != "" {
		dst = append(dst, "\r\nRateLimit-Policy: "...)
		dst = appendName(dst, r.Policy)
		dst = append(dst, ";q="...)
		dst = strconv.AppendInt(dst, r.Quota, 10)
		dst = append(dst, ";w="...)
		dst = strconv.AppendInt(dst, max(seconds(r.Window), 1), 10)
		if r.Tokens {
			dst = append(dst, `;qu="tokens"`...)
		}
		dst = append(dst, "\r\nRateLimit: "...)
		dst = appendName(dst, r.Policy)
		dst = append(dst, ";r=0"...)
		if ends {
			dst = append(dst, ";t="...)
			dst = strconv.AppendInt(dst, wait, 10)
		}
		dst = appendNumber(dst, "X-RateLimit-Limit", r.Quota)
		dst = appendNumber(dst, "X-RateLimit-Remaining", 0)
		if ends {
			dst = appendNumber(dst, "X-RateLimit-Reset", wait)
		}
	}
	if r.Position > 0 {
		dst = appendNumber(dst, "X-Queue-Position", int64(r.Position))
	}
	if r.Position > 0 && r.Expected < math.MaxInt64 {
		dst = appendNumber(dst, "X-Queue-Wait", seconds(r.Expected))
	}
	if !r.Now.IsZero() {
		dst = append(dst, "\r\nDate: "...)
		dst = r.Now.UTC().AppendFormat(dst, dates[0])
	}
	dst = append(dst, "\r\nContent-Length: 0\r\n"...)
	if m.Close {
		dst = append(dst, "Connection: close\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// appendNumber appends a field that is a number.
func appendNumber(dst []byte, name string, n int64) []byte {
	dst = append(append(append(dst, "\r\n"...), name...), ": "...)
	return strconv.AppendInt(dst, n, 10)
}

// seconds rounds a duration up to whole seconds.
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// appendName appends a String (RFC 8941, 3.3.3). A question mark replaces each byte that a
// String cannot hold.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"', c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20, c >= 0x7f:
			dst = append(dst, '?')
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

package frame

import "time"

// longest bounds the wait that a response asks for. A century means for ever.
const longest = 100 * 365 * 24 * time.Hour

// dates are the three formats of a date (RFC 9110, 5.6.7).
var dates = [...]string{
	"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC,
}

// HTTPThrottle returns what a response says about the rate. retryAfter is its Retry-After
// field, empty if it has none. A 429 says that the client is too fast, and so does a 503 with
// a valid Retry-After.
func HTTPThrottle(status int, retryAfter []byte) (t Throttle) {
	if status != 429 && status != 503 {
		return t
	}
	if seconds, ok := decimal(retryAfter); ok {
		t.Limited = true
		t.Wait = time.Duration(min(seconds, int64(longest/time.Second))) * time.Second
		return t
	}
	for _, form := range dates {
		if at, err := time.Parse(form, string(retryAfter)); err == nil {
			return Throttle{Limited: true, Until: at}
		}
	}
	if allDigits(retryAfter) { // too many digits for decimal
		return Throttle{Limited: true, Wait: longest}
	}
	t.Limited = status == 429
	return t
}

func allDigits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) > 0
}

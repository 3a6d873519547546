package frame

import (
	"bytes"
	"time"
)

// Numbers from these on are seconds, or milliseconds, since 1970: so many seconds from now would be
// 31 years.
const (
	sinceEpoch   = 1_000_000_000
	msSinceEpoch = 100_000_000_000
)

// until returns how long it takes from now on until a limit is renewed; false if the text says no
// time. If that has passed, the result is not above 0.
func (r *hintReader) until(text []byte, now time.Time) (d time.Duration, ok bool) {
	switch n, part, ok := secondsOf(text); {
	case ok && n >= msSinceEpoch:
		return r.at(time.UnixMilli(n), now), true
	case ok && n >= sinceEpoch:
		return r.at(time.Unix(n, int64(part)), now), true
	case ok:
		return time.Duration(n)*time.Second + part, true
	}
	if len(text) > len(time.RFC3339Nano) {
		return 0, false
	}
	if d, err := time.ParseDuration(string(text)); err == nil {
		return d, d >= 0
	}
	if at, ok := date(text); ok {
		return r.at(at, now), true
	}
	return 0, false
}

// at returns how long it takes until a time that the clock of the provider shows. Its Date is that
// clock, rounded down, so the result is rather too long.
func (r *hintReader) at(t, now time.Time) time.Duration {
	if then, ok := date(r.date); ok {
		now = then
	}
	return t.Sub(now)
}

// date reads a date.
func date(text []byte) (t time.Time, ok bool) {
	if len(text) < len("2006-01-02T15:04:05Z") {
		return t, false
	}
	for _, form := range [...]string{time.RFC3339, dates[0], dates[1], dates[2]} {
		if t, err := time.Parse(form, string(text)); err == nil {
			return t, true
		}
	}
	return t, false
}

// inSeconds reads a number of seconds from now on, which may have a fraction.
func inSeconds(text []byte) (d time.Duration, ok bool) {
	n, part, ok := secondsOf(text)
	if !ok || n >= sinceEpoch {
		return 0, false
	}
	return time.Duration(n)*time.Second + part, true
}

// secondsOf reads a number of seconds: n, and a part of one more.
func secondsOf(text []byte) (n int64, part time.Duration, ok bool) {
	whole, fraction, _ := bytes.Cut(text, []byte("."))
	n, ok = decimal(whole)
	if !ok || len(fraction) > 0 && !allDigits(fraction) {
		return 0, 0, false
	}
	unit := time.Second
	for _, c := range fraction {
		unit /= 10
		part += time.Duration(c-'0') * unit
	}
	return n, part, true
}

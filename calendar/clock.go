package calendar

import (
	"errors"
	"fmt"
	"time"
)

// Clock is a time of day that a clock on the wall shows, from 00:00 to 24:00, in minutes.
// The zero Clock is 00:00.
type Clock int16

// Midnight is the end of a day.
const Midnight Clock = 24 * 60

// ParseClock reads "HH:MM".
func ParseClock(s string) (Clock, error) {
	if len(s) != 5 || s[2] != ':' {
		return 0, errNoClock
	}
	for _, i := range []int{0, 1, 3, 4} {
		if s[i] < '0' || s[i] > '9' {
			return 0, errNoClock
		}
	}
	hour, minute := int(s[0]-'0')*10+int(s[1]-'0'), int(s[3]-'0')*10+int(s[4]-'0')
	if c := Clock(hour*60 + minute); minute < 60 && c <= Midnight {
		return c, nil
	}
	return 0, errNoClock
}

var errNoClock = errors.New("it is not a time of day from 00:00 to 24:00")

// String prints "HH:MM".
func (c Clock) String() string { return fmt.Sprintf("%02d:%02d", c/60, c%60) }

// MarshalText is String.
func (c Clock) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is ParseClock.
func (c *Clock) UnmarshalText(text []byte) (err error) {
	*c, err = ParseClock(string(text))
	return err
}

// On returns when clocks in a place show c on a date. If they are set back and show it twice, On returns
// the first time. If they are set forward and skip it, On returns the moment at which they are set.
func (c Clock) On(y int, m time.Month, d int, loc *time.Location) time.Time {
	t := time.Date(y, m, d, 0, int(c), 0, 0, loc)
	begin, end := t.ZoneBounds()
	want := time.Date(y, m, d, 0, int(c), 0, 0, time.UTC)
	switch skew := wall(t).Sub(want); {
	case skew > 0: // time.Date takes the time after the skip
		return begin
	case skew < 0: // time.Date takes the time before it
		return end
	case begin.IsZero():
		return t
	}
	_, offset := t.Zone()
	_, before := begin.Add(-1).Zone()
	if first := t.Add(-time.Duration(before-offset) * time.Second); first.Before(begin) && wall(first).Equal(want) {
		return first
	}
	return t
}

// wall returns what a clock shows at t, as a time in UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

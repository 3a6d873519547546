package unit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// timeUnits are the units of time; FormatDuration prefers the first ones. "m" is a minute,
// as in Go.
var timeUnits = []scale{
	{"h", int64(time.Hour)}, {"min", int64(time.Minute)}, {"s", int64(time.Second)},
	{"ms", int64(time.Millisecond)}, {"us", int64(time.Microsecond)}, {"ns", 1},
	{"m", int64(time.Minute)}, {"d", int64(day)},
}

// Duration is a time.Duration that reads and prints like a policy file: "250ms", "2s",
// "15min", "1h". The zero Duration is "0s".
type Duration time.Duration

// ParseDuration reads a duration, which may have several parts: "1min30s". It must be a
// whole number of nanoseconds and not negative.
func ParseDuration(s string) (Duration, error) {
	d, err := parseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: %w; a duration is like \"250ms\", \"2s\", \"15min\" or \"1h\"", s, err)
	}
	return Duration(d), nil
}

func parseDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, errNoNumber
	}
	var sum time.Duration
	for s != "" {
		number, rest, err := cutNumber(s)
		if err != nil {
			return 0, err
		}
		end := 0
		for end < len(rest) && (rest[end] < '0' || rest[end] > '9') {
			end++
		}
		if end == 0 {
			return 0, errNoUnit
		}
		factor, ok := find(timeUnits, rest[:end])
		if !ok {
			return 0, fmt.Errorf("%q is not a unit of time", rest[:end])
		}
		part, err := number.times(factor, 1)
		if err != nil || part.num/part.den > math.MaxInt64-int64(sum) {
			return 0, errTooLarge
		}
		if part.den != 1 {
			return 0, errors.New("it is not a whole number of nanoseconds")
		}
		sum += time.Duration(part.num)
		s = rest[end:]
	}
	return sum, nil
}

// FormatDuration prints d in the largest unit in which it is a whole number. ParseDuration
// reads it back.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	for _, u := range timeUnits {
		if int64(d)%u.factor == 0 {
			return strconv.FormatInt(int64(d)/u.factor, 10) + u.name
		}
	}
	panic("unit: no unit divides " + d.String()) // "ns" does
}

// String prints the duration as FormatDuration does.
func (d Duration) String() string { return FormatDuration(time.Duration(d)) }

// MarshalText returns String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the text with ParseDuration.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

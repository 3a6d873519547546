package limit

import (
	"math"
	"math/bits"
	"time"
)

// A clock holds the latest time that it has seen: if time goes back, it stands still.
type clock struct{ now time.Time }

// see returns the latest of now and all times that it saw before.
func (c *clock) see(now time.Time) time.Time {
	if now.After(c.now) {
		c.now = now
	}
	return c.now
}

// byClockOf returns the instant at which the wall clock shows at, unless somebody sets it, by
// the clock of now.
func byClockOf(now, at time.Time) time.Time { return now.Add(at.Sub(now.Round(0))) }

// plus returns a+b for non-negative a and b, at most the largest int64. As a
// Duration that means for ever; see After.
func plus[T ~int64](a, b T) T {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// times returns n*d for non-negative n and d, at most the longest Duration.
func times(n int64, d time.Duration) time.Duration {
	hi, lo := bits.Mul64(uint64(n), uint64(d))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(lo)
}

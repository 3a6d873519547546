package policy

import (
	"fmt"
	"time"

	"shaper/unit"
)

// HasBurst reports whether the algorithm has a bucket, whose depth is Burst.
func (a Algorithm) HasBurst() bool { return a == Token || a == GCRA }

// HasWindow reports whether the algorithm counts what leaves in a window.
func (a Algorithm) HasWindow() bool {
	return a == FixedWindow || a == SlidingLog || a == SlidingWindow
}

// WindowInForce returns Window, or where that is left out the period of the
// limit as it was written: 15 minutes for "20000 packets/15min".
func (c Class) WindowInForce() time.Duration {
	if c.Window > 0 {
		return time.Duration(c.Window)
	}
	return c.Limit().Period()
}

// AtOnce returns how much may leave at once where the policy says so: what a window
// holds, or Burst. It is 0 where that is one quantum.
func (c Class) AtOnce() int64 {
	switch {
	case c.Algorithm.HasWindow():
		return c.Limit().Below(c.Headroom).Units(c.WindowInForce())
	case c.Algorithm.HasBurst():
		return c.Burst.N
	}
	return 0
}

// window checks that a window holds whole units: a part of one never leaves, so
// that the limit would be another than was written.
func (c *checker) window(key string, class *Class) {
	limit, limitKey := class.Limit(), key+".rate"
	if limit != class.Rate {
		limitKey = key + ".ceil"
	}
	window, kind := unit.Duration(class.WindowInForce()), limit.Kind()
	_, ns := limit.Exact() // in lowest terms, so that only multiples of ns hold whole units
	switch {
	case !class.Algorithm.HasWindow():
		if class.Window > 0 {
			c.wrong(key+".window", string(class.Algorithm)+" has no window",
				`leave it out, or set algorithm = "fixed-window", "sliding-log" or "sliding-window"`)
		}
	case limit.IsZero():
	case int64(window)%ns > 0 && class.Window > 0:
		c.wrong(key+".window", fmt.Sprintf("%q at the rate %q does not hold a whole number of %v", window, limit, kind),
			fmt.Sprintf("a multiple of %q", unit.Duration(ns)))
	case int64(window)%ns > 0:
		c.wrong(limitKey, fmt.Sprintf("%q is not a whole number of %v in a window of %v", limit, kind, window),
			fmt.Sprintf("add a window that is a multiple of %q", unit.Duration(ns)))
	case limit.Below(class.Headroom).Units(time.Duration(window)) == 0:
		c.wrong(key+".headroom", fmt.Sprintf("%q leaves no whole one of the %d %v in a window of %v",
			class.Headroom, limit.Units(time.Duration(window)), kind, window), "a smaller headroom, or a longer window")
	}
}

package policy

import (
	"time"
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

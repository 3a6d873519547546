package policy

import (
	"time"
)

// HasBurst reports whether the algorithm has a bucket, whose depth is Class.Burst.
func (a Algorithm) HasBurst() bool { return a == Token || a == GCRA }

// HasWindow reports whether the algorithm counts what leaves within a window.
func (a Algorithm) HasWindow() bool {
	return a == FixedWindow || a == SlidingLog || a == SlidingWindow
}

// WindowInForce returns Window. If that is left out, it returns the period of the limit as
// written: 15 minutes for "20000 packets/15min".
func (c Class) WindowInForce() time.Duration {
	if c.Window > 0 {
		return time.Duration(c.Window)
	}
	return c.Limit().Period()
}

// AtOnce returns how much may leave at once according to the policy, in the unit of the
// rate: what a window allows, or Burst. It returns 0 if that is one quantum.
func (c Class) AtOnce() int64 {
	switch {
	case c.Algorithm.HasWindow():
		return c.Limit().Below(c.Headroom).Units(c.WindowInForce())
	case c.Algorithm.HasBurst():
		return c.Burst.N
	}
	return 0
}

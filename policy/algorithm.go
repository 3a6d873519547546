package policy

// Algorithms are all algorithms of this version.
var Algorithms = []Algorithm{Leaky, Token, GCRA, FixedWindow, SlidingLog, SlidingWindow}

// HasBurst reports whether the algorithm has a bucket, whose depth is Class.Burst.
func (a Algorithm) HasBurst() bool { return a == Token || a == GCRA }

// HasWindow reports whether the algorithm counts what leaves within a window.
func (a Algorithm) HasWindow() bool {
	return a == FixedWindow || a == SlidingLog || a == SlidingWindow
}

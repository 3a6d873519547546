package limit

import "time"

// Succeed says that l has taken the place of another limiter at now: all that left until then was
// charged to that one.
func Succeed(l Limiter, now time.Time) {
	if s, ok := l.(successor); ok {
		s.succeed(now)
	}
}

// A successor is a limiter that may take the place of another one. It has a Start.
type successor interface {
	succeed(now time.Time)
	charged(then time.Time) bool
}

// A Start is the part of a limiter that knows when the limiter has taken the place of another one. The zero
// Start is that of a limiter that has not.
type Start struct{ at time.Time }

func (s *Start) succeed(now time.Time) { s.at = now }

// charged reports whether the limiter, and not one before it, was charged for an item that left at
// the time then.
func (s *Start) charged(then time.Time) bool { return s.at.IsZero() || then.After(s.at) }

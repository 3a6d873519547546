package frame

import (
	"fmt"
	"iter"
)

// An Error says that bytes cannot be framed, and why not.
type Error struct {
	Protocol Protocol
	Reason   Reason
	Offset   int64 // in the stream, of where it was found
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s at byte %d", e.Protocol, e.Reason, e.Offset)
}

// A Reason is why bytes cannot be framed. The texts of all are few and stay, so
// that they may be labels of metrics.
type Reason uint8

// The reasons. What each means is said of the package, under the names that
// String gives them.
const (
	fine Reason = iota

	BadStart
	HTTP2
	BadField
	ObsFold
	BareLF
	BareCR
	BadHost
	HeadTooLarge
	BadLength
	BothLengths
	BadEncoding
	BadChunk
	BadUpgrade
	TooLong
	CutShort
	reasons
)

var reasonNames = [reasons]string{
	"", "bad-start", "http2", "bad-field", "obs-fold", "bare-lf", "bare-cr", "bad-host", "head-too-large",
	"bad-length", "both-lengths", "bad-encoding", "bad-chunk", "bad-upgrade", "too-long", "cut-short",
}

func (r Reason) String() string { return reasonNames[r] }

// Reasons goes over all reasons.
func Reasons() iter.Seq[Reason] {
	return func(yield func(Reason) bool) {
		for r := fine + 1; r < reasons && yield(r); r++ {
		}
	}
}

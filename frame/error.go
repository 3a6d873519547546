package frame

import (
	"fmt"
	"iter"
)

// An Error says why bytes cannot be framed, and where.
type Error struct {
	Protocol Protocol
	Reason   Reason
	Offset   int64 // in the stream, of the byte where it was found
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s at byte %d", e.Protocol, e.Reason, e.Offset)
}

// A Reason says why bytes cannot be framed. The texts are few and never change, so that they
// can be labels of metrics.
type Reason uint8

// The reasons. The comment of the package explains each, under the name that String returns.
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

// Reasons returns all reasons.
func Reasons() iter.Seq[Reason] {
	return func(yield func(Reason) bool) {
		for r := fine + 1; r < reasons && yield(r); r++ {
		}
	}
}

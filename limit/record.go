package limit

import (
	"math"
	"time"
)

// Record returns all that a limiter remembers at now, as numbers that another process can
// keep: Recall makes a new limiter of the same rate, burst and window go on from them. Times
// among them count from now. It is nil if the limiter is like a new one.
func Record(l Limiter, now time.Time) []int64 {
	if r, ok := l.(Recorder); ok {
		return r.Record(now)
	}
	m, _ := l.Memory(now)
	if !m.Until.After(now) {
		return nil
	}
	return []int64{int64(m.At.Sub(now)), m.Used[0], m.Used[1]}
}

// Recall makes a new limiter go on from a record of the time then, and reports whether that
// can be a record of such a limiter. If not, the limiter is not to be used.
func Recall(l Limiter, then time.Time, record []int64) bool {
	for _, n := range record {
		if n < -mostRecorded || n > mostRecorded {
			return false
		}
	}
	r, recorder := l.(Recorder)
	switch {
	case len(record) == 0:
		return true
	case recorder:
		return r.Recall(then, record)
	case len(record) != 3:
		return false
	}
	l.Remember(Memory{At: then.Add(time.Duration(record[0])), Used: [2]int64(record[1:])})
	return true
}

// mostRecorded bounds the numbers of a record, so that no sum of them overflows: far above
// what a window counts, or 73 years.
const mostRecorded = math.MaxInt64 / 4

// A Recorder is a Limiter that remembers more than a Memory holds. Its methods are the
// functions of the same names; Recall gets no number beyond mostRecorded and at least one.
type Recorder interface {
	Record(now time.Time) []int64
	Recall(then time.Time, record []int64) bool
}

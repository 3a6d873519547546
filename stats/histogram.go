package stats

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Schema is the resolution of a Histogram: 2^Schema buckets for each doubling,
// the standard exponential buckets of Prometheus's native histograms.
const Schema = 3

const (
	minExponent = -20 // buckets begin at 2^-20 s, about a microsecond
	maxExponent = 14  // and end at 2^14 s, about four and a half hours
	perDoubling = 1 << Schema
	numBuckets  = (maxExponent - minExponent) * perDoubling
)

// Histogram counts durations in exponential buckets: bucket i holds those in
// (Bound(i-1), Bound(i)], each bound 2^(1/8) times the one before, so a
// quantile is at most 9.1 % too long. The last bucket also holds what is longer
// still. The zero Histogram is empty and ready to use.
type Histogram struct {
	zero    atomic.Uint64 // at most a microsecond: did not wait
	buckets [numBuckets]atomic.Uint64
	// In microseconds: nanoseconds would overflow when 10,000 items a second
	// wait a second each for ten days.
	sum atomic.Uint64
}

// ZeroThreshold is the longest duration that counts as not having waited.
const ZeroThreshold = time.Second / (1 << -minExponent)

// limits[i] is the upper bound of bucket i in nanoseconds.
var limits = func() (l [numBuckets]int64) {
	for i := range l {
		l[i] = int64(math.Floor(Bound(i) * 1e9))
	}
	return l
}()

// Bound returns the upper bound of bucket i, in seconds.
func Bound(i int) float64 {
	return math.Exp2(float64(i+1)/perDoubling + minExponent)
}

// Index returns the number that a native histogram of this Schema gives to
// bucket i.
func Index(i int) int { return i + 1 + minExponent*perDoubling }

// Observe counts one duration. It takes a few nanoseconds and never blocks.
func (h *Histogram) Observe(d time.Duration) { h.Add(Observed(d)) }

// An Observation is a duration as every Histogram counts it.
type Observation struct {
	bucket       int // below 0: it is at most ZeroThreshold
	microseconds uint64
}

// Observed returns the observation of a duration, for many histograms to count.
func Observed(d time.Duration) Observation {
	if d <= ZeroThreshold {
		return Observation{bucket: -1}
	}
	return Observation{bucketOf(int64(d)), uint64(d+time.Microsecond/2) / uint64(time.Microsecond)}
}

// Add counts one observation.
func (h *Histogram) Add(o Observation) {
	if o.bucket < 0 {
		h.zero.Add(1)
		return
	}
	h.buckets[o.bucket].Add(1)
	h.sum.Add(o.microseconds)
}

// bucketOf returns the bucket that holds ns, which is above ZeroThreshold.
func bucketOf(ns int64) int {
	// 2^30 ns are a little more than a second, so the doubling found this way
	// is the right one or the one before: at most nine steps remain.
	i := (bits.Len64(uint64(ns)) - 31 - minExponent) * perDoubling
	i = min(max(i, 0), numBuckets-1)
	for i < numBuckets-1 && limits[i] < ns {
		i++
	}
	return i
}

// HistogramReading is a Histogram at one moment.
type HistogramReading struct {
	Zero    uint64         // at most ZeroThreshold
	Buckets map[int]uint64 // by bucket; empty buckets are left out
	Count   uint64
	Sum     float64 // seconds; more than a Duration can hold
}

// Read returns the histogram's counts. Count is the sum of the buckets as read,
// so the reading is consistent in itself while others observe.
func (h *Histogram) Read() HistogramReading {
	r := HistogramReading{Zero: h.zero.Load(), Buckets: map[int]uint64{}}
	r.Count = r.Zero
	for i := range h.buckets {
		if n := h.buckets[i].Load(); n > 0 {
			r.Buckets[i] = n
			r.Count += n
		}
	}
	r.Sum = float64(h.sum.Load()) / 1e6
	return r
}

// Within returns how many durations did not exceed the bound of bucket i.
func (r HistogramReading) Within(i int) uint64 {
	n := r.Zero
	for bucket, count := range r.Buckets {
		if bucket <= i {
			n += count
		}
	}
	return n
}

// Since returns what has been observed since an earlier reading of the histogram.
// Where that has more, it is another histogram, and all of this one counts.
func (r HistogramReading) Since(before HistogramReading) HistogramReading {
	if before.Count > r.Count {
		return r
	}
	since := HistogramReading{Zero: r.Zero - before.Zero, Buckets: map[int]uint64{}, Count: r.Count - before.Count, Sum: r.Sum - before.Sum}
	for i, n := range r.Buckets {
		if more := n - before.Buckets[i]; more > 0 {
			since.Buckets[i] = more
		}
	}
	return since
}

// Quantile returns a duration that the share q of what was observed does not
// exceed, rounded up to the bound of its bucket; 0 when nothing was observed.
func (r HistogramReading) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(r.Count)))
	seen := r.Zero
	if rank <= seen {
		return 0
	}
	for i := range numBuckets {
		if seen += r.Buckets[i]; seen >= rank {
			return time.Duration(Bound(i) * 1e9)
		}
	}
	return time.Duration(Bound(numBuckets-1) * 1e9)
}

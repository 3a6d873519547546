package stats

import (
	"maps"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Schema is the resolution of a Histogram: it has 2^Schema buckets for each doubling of
// the duration, which are the exponential buckets of Prometheus's native histograms.
const Schema = 3

const (
	minExponent  = -20 // buckets begin at 2^-20 s, about a microsecond
	longExponent = 14  // from 2^14 s on, about four and a half hours, few histograms need them
	maxExponent  = 34  // 2^34 s are more than a Duration can be
	perDoubling  = 1 << Schema
	numShort     = (longExponent - minExponent) * perDoubling
	numBuckets   = (maxExponent - minExponent) * perDoubling
)

// Histogram counts durations in exponential buckets. Bucket i holds the durations in
// (Bound(i-1), Bound(i)]. Each bound is 2^(1/8) times the one before, so a quantile is at
// most 9.1 % too long. There is a bucket for each Duration. The zero Histogram is empty,
// ready to use and safe for concurrent use.
type Histogram struct {
	zero  atomic.Uint64 // durations up to ZeroThreshold
	short [numShort]atomic.Uint64
	long  atomic.Pointer[longBuckets] // nil: no duration was longer than the short buckets
	// sum is in microseconds. Nanoseconds would overflow after ten days if 10,000 items
	// a second wait a second each.
	sum atomic.Uint64
}

// longBuckets follow the short ones. They have some 1.3 KB, which most classes need not have.
type longBuckets [numBuckets - numShort]atomic.Uint64

// ZeroThreshold is the longest duration that counts as no wait.
const ZeroThreshold = time.Second / (1 << -minExponent)

// limits[i] is the upper bound of bucket i in nanoseconds, or the longest Duration if that is less.
var limits = func() (l [numBuckets]int64) {
	for i := range l {
		l[i] = math.MaxInt64
		if ns := math.Floor(Bound(i) * 1e9); ns < math.MaxInt64 {
			l[i] = int64(ns)
		}
	}
	return l
}()

// Bound returns the upper bound of bucket i, in seconds.
func Bound(i int) float64 {
	return math.Exp2(float64(i+1)/perDoubling + minExponent)
}

// Index returns the number of bucket i in a native histogram of this Schema.
func Index(i int) int { return i + 1 + minExponent*perDoubling }

// Observe counts one duration. It never blocks. It allocates once in the life of the histogram: for
// the first duration of more than 2^14 s.
func (h *Histogram) Observe(d time.Duration) { h.Add(Observed(d)) }

// An Observation is a duration, prepared for any Histogram to count.
type Observation struct {
	bucket       int // negative if the duration is at most ZeroThreshold
	microseconds uint64
}

// Observed prepares a duration. Use it if several histograms count the same duration.
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
	h.counter(o.bucket).Add(1)
	h.sum.Add(o.microseconds)
}

// counter returns the counter of a bucket.
func (h *Histogram) counter(bucket int) *atomic.Uint64 {
	if bucket < numShort {
		return &h.short[bucket]
	}
	return &h.makeLong()[bucket-numShort]
}

// makeLong returns the long buckets, and makes them the first time.
func (h *Histogram) makeLong() *longBuckets {
	if h.long.Load() == nil {
		h.long.CompareAndSwap(nil, new(longBuckets))
	}
	return h.long.Load()
}

// bucketOf returns the bucket of a duration in nanoseconds, which exceeds ZeroThreshold.
func bucketOf(ns int64) int {
	// 2^30 ns are slightly more than a second, so this finds the right doubling or the
	// one before it. At most nine steps remain.
	i := (bits.Len64(uint64(ns)) - 31 - minExponent) * perDoubling
	i = min(max(i, 0), numBuckets-1)
	for i < numBuckets-1 && limits[i] < ns {
		i++
	}
	return i
}

// HistogramReading is a Histogram at one moment.
type HistogramReading struct {
	Zero    uint64         // durations up to ZeroThreshold
	Buckets map[int]uint64 // by bucket, without the empty ones
	Count   uint64
	Sum     float64 // seconds; more than a Duration can hold
}

// Read returns the counts of the histogram. Count is the sum of Zero and Buckets, so a
// reading is consistent even if others observe meanwhile.
func (h *Histogram) Read() HistogramReading {
	r := HistogramReading{Zero: h.zero.Load(), Buckets: map[int]uint64{}}
	r.Count = r.Zero
	add := func(bucket int, n uint64) {
		if n > 0 {
			r.Buckets[bucket] = n
			r.Count += n
		}
	}
	for i := range h.short {
		add(i, h.short[i].Load())
	}
	if long := h.long.Load(); long != nil {
		for i := range long {
			add(numShort+i, long[i].Load())
		}
	}
	r.Sum = float64(h.sum.Load()) / 1e6
	return r
}

// Within returns how many durations are at most Bound(i).
func (r HistogramReading) Within(i int) uint64 {
	n := r.Zero
	for bucket, count := range r.Buckets {
		if bucket <= i {
			n += count
		}
	}
	return n
}

// Plus returns what two histograms counted together.
func (r HistogramReading) Plus(o HistogramReading) HistogramReading {
	sum := HistogramReading{Zero: r.Zero + o.Zero, Buckets: maps.Clone(r.Buckets), Count: r.Count + o.Count, Sum: r.Sum + o.Sum}
	if sum.Buckets == nil {
		sum.Buckets = map[int]uint64{}
	}
	for i, n := range o.Buckets {
		sum.Buckets[i] += n
	}
	return sum
}

// Since returns what the histogram counted after an earlier reading. If the earlier
// reading counts more, it is of another histogram, and Since returns r itself.
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

// Quantile returns the q-quantile of the durations, q from 0 to 1, rounded up to the
// bound of its bucket. It returns 0 if nothing was observed.
func (r HistogramReading) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(r.Count)))
	seen := r.Zero
	if rank <= seen {
		return 0
	}
	for i := range numBuckets {
		if seen += r.Buckets[i]; seen >= rank {
			return time.Duration(limits[i])
		}
	}
	return math.MaxInt64
}

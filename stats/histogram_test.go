package stats

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// A bucket holds durations up to its upper bound, and not a nanosecond more.
func TestBucketBounds(t *testing.T) {
	for i := 0; limits[i] < math.MaxInt64; i++ {
		last := time.Duration(limits[i])
		if got := bucketOf(int64(last)); got != i {
			t.Errorf("%v is in bucket %d, want %d", last, got, i)
		}
		if got := bucketOf(int64(last + 1)); got != i+1 {
			t.Errorf("%v is in bucket %d, want %d", last+1, got, i+1)
		}
	}
}

func TestBucketAgreesWithLogarithm(t *testing.T) {
	for _, d := range durations(100_000) {
		if d <= ZeroThreshold {
			continue
		}
		want := int(math.Ceil((math.Log2(d.Seconds())-minExponent)*perDoubling)) - 1
		if got := bucketOf(int64(d)); got != want {
			t.Fatalf("%v is in bucket %d, want %d", d, got, want)
		}
	}
}

func TestHistogramEnds(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{-1, 0, ZeroThreshold, ZeroThreshold + 1, time.Second, 1 << 62, math.MaxInt64} {
		h.Observe(d)
	}
	r := h.Read()
	if r.Count != 7 || r.Zero != 3 || r.Buckets[0] != 1 || r.Buckets[bucketOf(math.MaxInt64)] != 1 || len(r.Buckets) != 4 {
		t.Errorf("read %+v", r)
	}
	if r.Within(0) != 4 || r.Within(numShort-1) != 5 || r.Within(numBuckets-1) != 7 {
		t.Errorf("within: %d, %d, %d", r.Within(0), r.Within(numShort-1), r.Within(numBuckets-1))
	}
	if got := r.Quantile(1); got != math.MaxInt64 {
		t.Errorf("the longest is %v", got)
	}
}

// The sum must not overflow while the daemon runs. An int64 of nanoseconds cannot hold a
// year in which 20,000 items a second wait a second each.
func TestSumDoesNotOverflow(t *testing.T) {
	var h Histogram
	const item = time.Hour
	for range 4_000_000 { // 456 years
		h.Observe(item)
	}
	if got, want := h.Read().Sum, 4_000_000*item.Seconds(); got != want {
		t.Errorf("the sum is %g s, want %g s", got, want)
	}
}

func TestSumRoundsToTheNearestMicrosecond(t *testing.T) {
	var h Histogram
	h.Observe(1499 * time.Nanosecond)
	h.Observe(1500 * time.Nanosecond)
	if got := h.Read().Sum; got != 3e-6 {
		t.Errorf("the sum is %g s, want 3e-06 s", got)
	}
}

// A quantile is never too short, and at most one bucket too long.
func TestQuantile(t *testing.T) {
	var h Histogram
	seen := durations(20_001)
	for _, d := range seen {
		h.Observe(d)
	}
	slices.Sort(seen)
	r := h.Read()
	for _, q := range []float64{0.001, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := seen[int(math.Ceil(q*float64(len(seen))))-1]
		got := r.Quantile(q)
		if want <= ZeroThreshold {
			want = 0
		}
		// Bounds are rounded down to nanoseconds.
		if limit := float64(want) * math.Exp2(1./perDoubling); got < want || float64(got) > limit+1 {
			t.Errorf("quantile %v is %v, want %v to %v", q, got, want, time.Duration(limit))
		}
	}
}

func TestQuantileOfLittle(t *testing.T) {
	var h Histogram
	if got := h.Read().Quantile(0.99); got != 0 {
		t.Errorf("the quantile of an empty histogram is %v", got)
	}
	h.Observe(0)
	if got := h.Read().Quantile(0.99); got != 0 {
		t.Errorf("the quantile of an item that did not wait is %v", got)
	}
	h.Observe(time.Second)
	if got := h.Read().Quantile(0.5); got != 0 {
		t.Errorf("p50 of 0 s and 1 s is %v, want 0", got)
	}
	if got := h.Read().Quantile(0.99); got != time.Second {
		t.Errorf("p99 of 0 s and 1 s is %v, want 1s", got)
	}
}

// Readings are consistent while others observe: no count is lost, and none decreases.
func TestHistogramConcurrently(t *testing.T) {
	const writers, each = 8, 5_000
	var h Histogram
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for range each {
				h.Observe(time.Duration(random.Int64N(int64(10 * time.Hour))))
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	var last uint64
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		r := h.Read()
		if r.Count < last || r.Within(numBuckets) != r.Count {
			t.Fatalf("the count is %d after %d; the buckets add up to %d", r.Count, last, r.Within(numBuckets))
		}
		last = r.Count
	}
	if last != writers*each {
		t.Errorf("%d of %d observations are counted", last, writers*each)
	}
}

// TestPlus compares two histograms with one that has counted what both have.
func TestPlus(t *testing.T) {
	var a, b, both Histogram
	for i, d := range durations(1000) {
		if both.Observe(d); i%3 == 0 {
			a.Observe(d)
		} else {
			b.Observe(d)
		}
	}
	sum, want := a.Read().Plus(b.Read()), both.Read()
	if !maps.Equal(sum.Buckets, want.Buckets) || sum.Zero != want.Zero || sum.Count != want.Count || math.Abs(sum.Sum-want.Sum) > 1e-3 {
		t.Errorf("the sum is %+v, want %+v", sum, want)
	}
	if sum := (HistogramReading{}).Plus(a.Read()); sum.Count != a.Read().Count {
		t.Errorf("nothing plus %d observations are %d", a.Read().Count, sum.Count)
	}
}

func TestObserveDoesNotAllocate(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{3 * time.Millisecond, 3 * time.Hour * 24} { // AllocsPerRun runs once before it counts
		if n := testing.AllocsPerRun(1000, func() { h.Observe(d) }); n != 0 {
			t.Errorf("Observe(%v) allocates %v times", d, n)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, c := range []struct {
		name string
		d    time.Duration
	}{{"no wait", 0}, {"at the start of a doubling", 1080 * time.Microsecond}, {"at its end", 2 * time.Millisecond}, {"long", 24 * time.Hour}} {
		b.Run(c.name, func(b *testing.B) {
			var h Histogram
			b.ReportAllocs()
			for b.Loop() {
				h.Observe(c.d)
			}
		})
	}
}

func BenchmarkObserveParallel(b *testing.B) {
	var h Histogram
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			h.Observe(3 * time.Millisecond)
		}
	})
}

// durations returns the same n random durations on each call, from nanoseconds to centuries.
func durations(n int) []time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	d := make([]time.Duration, n)
	for i := range d {
		d[i] = time.Duration(math.Exp2(random.Float64() * 63))
	}
	return d
}

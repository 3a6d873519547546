package metrics

import (
	"time"

	"shaper/stats"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// The classic buckets of waits and of lateness. Those of waits go on to four and a half hours: what waits for
// the next window of a quota waits for hours.
var (
	waitBuckets = classicBuckets(1./1024, 16384)
	lateBuckets = classicBuckets(1./(1<<19), 1./8)
)

// classicBuckets returns the buckets of stats.Histogram whose bounds are also those of classic
// buckets: the powers of two from least to most, in seconds. At any other bound the count would
// be an estimate.
func classicBuckets(least, most float64) (buckets []int) {
	for i := 0; stats.Bound(i) <= most; i++ {
		if stats.Index(i)%(1<<stats.Schema) == 0 && stats.Bound(i) >= least {
			buckets = append(buckets, i)
		}
	}
	return buckets
}

// A histogram is a native histogram with classic buckets. No constructor of client_golang
// makes one from existing counts.
type histogram struct {
	prometheus.Metric
	classic []*dto.Bucket
}

// newHistogram returns a reading as a histogram with the given classic buckets.
func newHistogram(desc *prometheus.Desc, r stats.HistogramReading, buckets []int, labels ...string) prometheus.Metric {
	native := make(map[int]int64, len(r.Buckets))
	for i, n := range r.Buckets {
		native[stats.Index(i)] = int64(n)
	}
	m, err := prometheus.NewConstNativeHistogram(desc, r.Count, r.Sum, native, nil, r.Zero,
		stats.Schema, zeroThreshold, time.Time{}, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	h := histogram{Metric: m}
	for _, i := range buckets {
		h.classic = append(h.classic, &dto.Bucket{
			UpperBound:      new(stats.Bound(i)),
			CumulativeCount: new(r.Within(i)),
		})
	}
	return h
}

// zeroThreshold is the lower bound of bucket 0, so that there is no gap. It differs from
// stats.ZeroThreshold by a fraction of a nanosecond.
var zeroThreshold = stats.Bound(-1)

// Write writes the native histogram and the classic buckets.
func (h histogram) Write(out *dto.Metric) error {
	if err := h.Metric.Write(out); err != nil {
		return err
	}
	out.Histogram.Bucket = h.classic
	out.Histogram.CreatedTimestamp = nil // not known
	return nil
}

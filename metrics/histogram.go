package metrics

import (
	"time"

	"shaper/stats"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// classicBuckets are the buckets of stats.Histogram whose bounds are also those of the
// classic buckets: the powers of two from 1/1024 s to 256 s. At any other bound the count
// would be an estimate.
var classicBuckets = func() (buckets []int) {
	for i := 0; stats.Bound(i) <= 256; i++ {
		if stats.Index(i)%(1<<stats.Schema) == 0 && stats.Bound(i) >= 1./1024 {
			buckets = append(buckets, i)
		}
	}
	return buckets
}()

// A histogram is a native histogram with classic buckets. No constructor of client_golang
// makes one from existing counts.
type histogram struct {
	prometheus.Metric
	classic []*dto.Bucket
}

func newHistogram(desc *prometheus.Desc, r stats.HistogramReading, labels ...string) prometheus.Metric {
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
	for _, i := range classicBuckets {
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

package metrics

import (
	"time"

	"shaper/stats"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// classicBuckets are bounds of classic buckets, by bucket of stats.Histogram:
// the powers of two from a millisecond to four minutes. Any other bound would
// have to be guessed from the buckets that there are.
var classicBuckets = func() (buckets []int) {
	for i := 0; stats.Bound(i) <= 256; i++ {
		if stats.Index(i)%(1<<stats.Schema) == 0 && stats.Bound(i) >= 1./1024 {
			buckets = append(buckets, i)
		}
	}
	return buckets
}()

// A histogram is a native histogram that has classic buckets as well, which
// no constructor of client_golang makes of ready counts.
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

// zeroThreshold is the lower bound of bucket 0, so that no gap is left. It
// differs from stats.ZeroThreshold by part of a nanosecond.
var zeroThreshold = stats.Bound(-1)

// Write writes the native histogram and adds the classic buckets.
func (h histogram) Write(out *dto.Metric) error {
	if err := h.Metric.Write(out); err != nil {
		return err
	}
	out.Histogram.Bucket = h.classic
	out.Histogram.CreatedTimestamp = nil // not counted, so not claimed
	return nil
}

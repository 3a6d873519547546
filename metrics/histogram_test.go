package metrics

import (
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"shaper/stats"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// observations returns waits of all lengths, and waits at the bounds of buckets.
func observations() (waits []time.Duration) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		waits = append(waits, time.Duration(math.Exp2(random.Float64()*62)))
	}
	for exponent := range 14 {
		second := time.Second << exponent
		waits = append(waits, second-1, second, second+1)
	}
	for i := range 100 {
		bound := time.Duration(stats.Bound(i) * 1e9)
		waits = append(waits, bound, bound+1)
	}
	return waits
}

// A scrape shows what a histogram of client_golang would show, native and classic.
func TestHistogramEqualsPrometheus(t *testing.T) {
	bounds := make([]float64, len(waitBuckets))
	for i, b := range waitBuckets {
		bounds[i] = stats.Bound(b)
	}
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:                         "shaper_class_wait_seconds",
		Buckets:                      bounds,
		NativeHistogramBucketFactor:  math.Exp2(math.Exp2(-stats.Schema)),
		NativeHistogramZeroThreshold: stats.Bound(-1),
	})
	var ours stats.Histogram
	for n, wait := range observations() {
		ours.Observe(wait)
		theirs.Observe(wait.Seconds())
		if n < 3 || n%1000 == 0 {
			compare(t, ours.Read(), theirs)
		}
	}
	compare(t, ours.Read(), theirs)
}

func compare(t *testing.T, reading stats.HistogramReading, theirs prometheus.Metric) {
	t.Helper()
	got, want := write(t, newHistogram(wait, reading, waitBuckets, "acme")), write(t, theirs)
	want.CreatedTimestamp = nil // ours has none
	// Our sum is in whole microseconds, theirs is a float.
	if math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6*float64(got.GetSampleCount()) {
		t.Errorf("the sum is %v, want %v", got.GetSampleSum(), want.GetSampleSum())
	}
	got.SampleSum = want.SampleSum
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("after %d observations (-client_golang +ours):\n%s", want.GetSampleCount(), diff)
	}
}

func write(t *testing.T, m prometheus.Metric) *dto.Histogram {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return proto.CloneOf(out.Histogram)
}

func TestEmptyHistogram(t *testing.T) {
	got := write(t, newHistogram(wait, new(stats.Histogram).Read(), waitBuckets, "acme"))
	if got.GetSampleCount() != 0 || got.GetZeroThreshold() == 0 || len(got.Bucket) != len(waitBuckets) {
		t.Errorf("got %v", got)
	}
}

// The bounds of classic buckets are exact, so an alert may compare with them.
func TestClassicBounds(t *testing.T) {
	for n, i := range waitBuckets {
		if got, want := stats.Bound(i), math.Exp2(float64(n-10)); got != want {
			t.Errorf("classic bucket %d ends at %v, want %v", n, got, want)
		}
	}
	if n := len(waitBuckets); n != 25 {
		t.Errorf("%d classic buckets, want 25, from 1/1024 s to 16384 s", n)
	}
}

// A scrape reports a count that contradicts its buckets, and does not show it.
func TestBrokenReading(t *testing.T) {
	status := fixed()
	status.Classes[0].Wait.Count++
	answer := httptest.NewRecorder()
	Handler(func() stats.Status { return status }).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 500 || !strings.Contains(answer.Body.String(), "shaper_class_wait_seconds") {
		t.Errorf("status %d: %s", answer.Code, answer.Body)
	}
}

// A Prometheus that asks for protobuf gets the native buckets.
func TestProtobuf(t *testing.T) {
	request := httptest.NewRequest("GET", "/metrics", nil)
	request.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	answer := httptest.NewRecorder()
	Handler(fixed).ServeHTTP(answer, request)
	if got := answer.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/vnd.google.protobuf") {
		t.Errorf("the answer is %s", got)
	}
}

package human

import (
	"testing"
	"time"

	"shaper/stats"
)

func TestFigures(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0B", 1023: "1023B", 1024: "1.0KiB", 1536: "1.5KiB", 1<<20 - 1: "1.0MiB", 5 << 30: "5.0GiB", 1<<64 - 1: "16.0EiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0", 500 * time.Microsecond: "0.5ms", 24100 * time.Microsecond: "24.1ms", 999 * time.Millisecond: "999ms",
		1234 * time.Millisecond: "1.23s", 90 * time.Second: "1m30s", 2 * time.Hour: "2h0m", time.Duration(stats.Never): "never",
	} {
		if got := Duration(stats.Seconds(d)); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 classes", 1: "1 class", 2: "2 classes"} {
		if got := Plural(n, "class"); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	now := time.Now()
	for d, want := range map[time.Duration]string{-time.Second: "0s", 61 * time.Second: "1m1s", 50 * time.Hour: "2d2h"} {
		if got := Elapsed(now.Add(-d), now); got != want {
			t.Errorf("%v ago is %s, want %s", d, got, want)
		}
	}
}

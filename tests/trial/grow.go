package trial

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Grown is what a benchmark of growth measures.
type Grown struct {
	Op   func(i int) // the operation, for the i-th time
	Each float64     // bytes of memory of each of what there are so many; 0: not measured
}

// Grow measures operations at each power of ten from one number to another. The name says what
// the operation is, and behind a slash what there are so many of: "item/classes". start makes them.
//
// It reports processor time ("cpu-ns/op"): on a busy machine, time itself says little. `make
// growth` draws it.
func Grow(b *testing.B, name string, from, to int, start func(b *testing.B, n int) Grown) {
	for n := from; n <= to; n *= 10 {
		b.Run(fmt.Sprintf("%s=%d", name, n), func(b *testing.B) {
			b.ReportAllocs()
			g := start(b, n)
			runtime.GC() // that of what start has left is no part of the operation
			began := processorTime()
			for i := 0; b.Loop(); i++ {
				g.Op(i)
			}
			b.ReportMetric(float64(processorTime()-began)/float64(b.N), "cpu-ns/op")
			if g.Each > 0 {
				b.ReportMetric(g.Each, "B/each")
			}
		})
	}
}

// processorTime returns the time for which this process has run, in nanoseconds.
func processorTime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return t.Nano()
}

// Heap returns the bytes that are in use after a collection.
func Heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

package simulate

import (
	"testing"
	"time"
)

// BenchmarkTenMillion simulates 10,000,000 datagrams of four clients, of which
// every second one has to wait, through a tree.
func BenchmarkTenMillion(b *testing.B) {
	p := parse(b, account+udp("urgent", "urgent")+udp("bulk", "bulk"))
	b.ReportAllocs()
	for b.Loop() {
		sources := loads(b, p, "rate=200 packets/s,pattern=poisson", "rate=200 packets/s,pattern=poisson")
		r, err := Run(p, sources, Options{For: 12_500 * time.Second})
		if err != nil {
			b.Fatal(err)
		}
		if n := r.Classes[0].Offered.Items; n < 9_900_000 || n > 10_100_000 {
			b.Fatalf("%d items", n)
		}
	}
}

// What is simulated longer allocates no more.
func TestItemsAllocateNothing(t *testing.T) {
	p := parse(t, account+udp("urgent", "urgent")+udp("bulk", "bulk"))
	allocs := func(length time.Duration) float64 {
		return testing.AllocsPerRun(1, func() {
			if _, err := Run(p, loads(t, p, "rate=200 packets/s,pattern=poisson"), Options{For: length}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if short, long := allocs(100*time.Second), allocs(1000*time.Second); long-short > 50 {
		t.Errorf("%v allocations in 100 s, %v in 1000 s", short, long)
	}
}

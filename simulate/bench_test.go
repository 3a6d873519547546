package simulate

import (
	"testing"
	"time"
)

// BenchmarkTenMillion sends 10,000,000 datagrams of four clients through a tree. Every second
// one has to wait.
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
			b.Fatalf("%d items were offered", n)
		}
	}
}

// A longer simulation makes no more allocations.
func TestItemsAllocateNothing(t *testing.T) {
	p := parse(t, account+udp("urgent", "urgent")+udp("bulk", "bulk"))
	allocs := func(length time.Duration) float64 {
		return testing.AllocsPerRun(1, func() {
			if _, err := Run(p, loads(t, p, "rate=200 packets/s,pattern=poisson"), Options{For: length}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if short, long := allocs(20*time.Second), allocs(200*time.Second); long-short > 50 {
		t.Errorf("20 s make %v allocations, and 200 s make %v", short, long)
	}
}

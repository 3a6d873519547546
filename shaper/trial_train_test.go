package shaper

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// offerTrain offers datagrams that came as one, as package conn does. Together leaves what
// fits into a piece of the class. If that finds no room, as many datagrams enter as there
// is room for.
func (c *inForce) offerTrain(now time.Time, size, n int64) {
	together := max(c.Piece()/size, 1)
	for ; n > 0; n -= together {
		k := min(together, n)
		if k > 1 {
			train := &Item{Cost: Cost{Bytes: k * size, Packets: k}, Held: k * size}
			if v := c.Enter(now, train); v == Leaves || v == Waits {
				continue
			}
		}
		for range k {
			c.offer(now, packet(size))
		}
	}
}

// Datagrams that came as one count as they would leave in force: together, as far as a
// piece of a class of bytes goes, and as many as the queue has room for.
func TestShadowOfTrains(t *testing.T) {
	lost := uint64(0)
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				conf := withQueue(classBy(algorithm, rapid.SampledFrom([]string{"20KB/s", "2MB/s"}).Draw(t, "rate")), rapid.Int64Range(1, 20).Draw(t, "queue"), 0)
				does, would := inForce{Class: NewClass(start, conf)}, NewClass(start, inShadow(conf))
				now := start
				for range rapid.IntRange(1, 20).Draw(t, "trains") {
					now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 30, 700}).Draw(t, "pause")) * ms)
					size, n := rapid.SampledFrom([]int64{100, 1200}).Draw(t, "size"), rapid.Int64Range(1, 40).Draw(t, "datagrams")
					does.catchUp(now)
					does.offerTrain(now, size, n)
					if !would.Pass(now, Cost{Bytes: n * size, Packets: n}) {
						t.Fatal("a class with shadow holds datagrams up")
					}
				}
				does.catchUp(now.Add(time.Hour))
				got, want := of(would.Status().Shadow(now.Add(time.Hour))), of(does.Stats)
				if lost += want.full; !got.is(want) {
					t.Fatalf("the shadow counts %s, and the class in force %s", got, want)
				}
			})
		})
	}
	if lost == 0 {
		t.Error("no datagram was lost: the test does not cover everything")
	}
}

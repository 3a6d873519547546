package tc

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

var (
	anyRate  = rapid.Uint64Range(12, 1<<40) // bytes per second
	anyBurst = rapid.Uint64Range(3028, 1<<24)
)

// tcTicks returns the ticks that tc(8) computes for a burst: tc_calc_xmittime in
// tc/tc_core.c, with the doubles and the truncations of C.
func tcTicks(rate, n uint64) uint32 {
	us := uint32(1000000 * (float64(n) / float64(rate)))
	return uint32(float64(us) * 15.625)
}

// tc(8) computes the same ticks from the bytes we print as we send. The bucket holds the
// bytes asked for, and less than 1 us and a byte more.
func TestHTBTicksAreThoseOfTC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate, n := anyRate.Draw(t, "rate"), anyBurst.Draw(t, "burst")
		n = min(n, longestBucket*rate)
		ticks := htbTicks(rate, n)
		if printed := htbBytes(rate, ticks); tcTicks(rate, printed) != ticks {
			t.Fatalf("%d ticks are printed as %d bytes, and come to %d ticks", ticks, printed, tcTicks(rate, printed))
		}
		holds := float64(ticks) * 64e-9 * float64(rate)
		if slack := 1e-6*float64(rate) + 2; holds > float64(n)+slack || holds < math.Min(float64(n), longestBucket*float64(rate)-slack)-64e-9*float64(rate)-1e-3 {
			t.Fatalf("the bucket holds %f bytes, want %d", holds, n)
		}
	})
}

// TBF's bucket holds the bytes asked for. The kernel computes the same ticks from the bytes
// we send, and the ticks are right.
func TestTBFTicksAreThoseOfTheKernel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate, n := anyRate.Draw(t, "rate"), anyBurst.Draw(t, "burst")
		if n > (longestBucket-1)*rate {
			t.Skip("no policy comes to this")
		}
		ticks := tbfDepth(rate, n)
		sent := tbfBytes(rate, ticks)
		if sent < n || sent > n+rate>>22+2 {
			t.Fatalf("a burst of %d is sent as %d", n, sent)
		}
		if tbfTicks(rate, sent) != ticks {
			t.Fatalf("%d bytes are %d ticks, not %d", sent, tbfTicks(rate, sent), ticks)
		}
		exact := new(big.Rat).Mul(big.NewRat(int64(sent), int64(rate)), big.NewRat(1e9, 64))
		if f, _ := exact.Float64(); math.Abs(f-float64(ticks)) > 2+f*1e-8 {
			t.Fatalf("%d bytes at %d are %f ticks, not %d", sent, rate, f, ticks)
		}
	})
}

// The smallest burst is two frames at low rates, and grows without a jump.
func TestSmallestBurst(t *testing.T) {
	d := &tree{builder: &builder{device: eth0}}
	for mbit, want := range map[uint64]uint64{1: 3028, 24: 3028, 50: 6250, 100: 12_500, 200: 62_500, 1000: 462_500, 10_000: 4_962_500} {
		if got := d.smallestBurst(mbit * 125_000); got != want {
			t.Errorf("at %d Mbit/s the burst is %d, want %d", mbit, got, want)
		}
	}
	for rate := uint64(1e6); rate < 1e9; rate += 1e5 {
		if step := d.smallestBurst(rate+1e5) - d.smallestBurst(rate); step > 400 {
			t.Fatalf("at %d B/s the burst grows by %d for 100,000 B/s more", rate, step)
		}
	}
}

package tc

import "math"

// The kernel measures the depth of a token bucket as a time, in ticks of 64 ns. HTB takes
// that time; TBF takes bytes and computes the time. tc(8) always takes bytes. All rates
// here are in bytes per second.

const (
	ticksPerMicrosecond = 15.625
	nsPerTickShift      = 6
	longestBucket       = 274 // seconds: the most that 32 bits of ticks can hold
)

// htbTicks returns the depth of a bucket that holds at least n bytes; it is longestBucket at
// most. The depth is a whole number of microseconds, as in tc(8), so a printed command has the
// same effect.
func htbTicks(rate, n uint64) uint32 {
	n = min(n+rate/1e6+1, longestBucket*rate)
	return uint32(math.Trunc(1e6*(float64(n)/float64(rate))) * ticksPerMicrosecond)
}

// htbBytes returns the number of bytes for which tc(8) computes so many ticks
// (tc_calc_xmittime in tc/tc_core.c of iproute2).
func htbBytes(rate uint64, ticks uint32) uint64 {
	us := math.Ceil(float64(ticks) / ticksPerMicrosecond)
	n := uint64(math.Ceil(us * float64(rate) / 1e6))
	for math.Trunc(1e6*(float64(n)/float64(rate))) < us {
		n++
	}
	return n
}

// tbfDepth returns the depth of TBF's bucket for a burst of at least n bytes.
func tbfDepth(rate, n uint64) uint32 { return tbfTicks(rate, n+rate>>23+1) } // in a tick less than rate/2^23 bytes pass

// tbfTicks returns the depth that TBF computes for a burst of n bytes: psched_l2t_ns, with
// the multiplier of psched_ratecfg_precompute (net/sched/sch_generic.c).
func tbfTicks(rate, n uint64) uint32 { return uint32(tbfTime(rate, n)) }

// tbfTime is tbfTicks in 64 bits, for depths beyond longestBucket. n has 32 bits.
func tbfTime(rate, n uint64) uint64 {
	factor, mult, shift := uint64(1e9), uint64(0), 0
	for {
		mult = factor / rate
		if mult&(1<<31) != 0 || factor&(1<<63) != 0 {
			break
		}
		factor, shift = factor<<1, shift+1
	}
	return n * mult >> shift >> nsPerTickShift
}

// tbfBytes returns the smallest burst for which TBF computes so many ticks.
func tbfBytes(rate uint64, ticks uint32) uint64 {
	least, most := uint64(0), uint64(1)<<32-1
	for least < most {
		if mid := (least + most) / 2; tbfTime(rate, mid) < uint64(ticks) {
			least = mid + 1
		} else {
			most = mid
		}
	}
	return least
}

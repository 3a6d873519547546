package fleet

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns how long the machine has been suspended since it started. CLOCK_BOOTTIME counts that time, and
// CLOCK_MONOTONIC does not, so their difference is the answer. The two are read one after the other, so suspended tries
// again if half of skewed passes in between.
func suspended() time.Duration {
	var before, boot, after unix.Timespec
	for {
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) // it cannot fail: Linux has both clocks
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
		if after.Nano()-before.Nano() < int64(skewed)/2 {
			return time.Duration(boot.Nano() - before.Nano())
		}
	}
}

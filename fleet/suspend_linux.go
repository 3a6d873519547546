package fleet

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns how long the machine was suspended since it has started: the clock of the kernel that goes on meanwhile,
// less the one that does not.
func suspended() time.Duration {
	var before, boot, after unix.Timespec
	for {
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) // the kernel has all three
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
		if after.Nano()-before.Nano() < int64(skewed)/2 {
			return time.Duration(boot.Nano() - before.Nano())
		}
	}
}

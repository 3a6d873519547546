package sock

import (
	"math"

	"golang.org/x/sys/unix"
)

// Descriptors returns how many descriptors the process may have open.
func Descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // a usual limit
	}
	return int(min(limit.Cur, math.MaxInt32))
}

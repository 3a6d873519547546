//go:build !linux

package fleet

import "time"

// suspended returns 0: only Linux says how long a machine was suspended.
func suspended() time.Duration { return 0 }

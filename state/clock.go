package state

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock tells times that mean something to another process. The zero Clock is that of the
// system.
type Clock struct {
	Wall func() time.Time
	// Boot returns which boot of the machine this is, and how much time has passed since. The
	// id is zero if that is not known.
	Boot func() (id [16]byte, since time.Duration)
}

// orSystem returns the clock with the system's in the place of what it lacks.
func (c Clock) orSystem() Clock {
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Boot == nil {
		c.Boot = systemBoot
	}
	return c
}

// systemBoot is Clock.Boot of Linux. The time since the boot goes on while the machine is
// suspended, and nobody can set it (clock_gettime(2), CLOCK_BOOTTIME).
func systemBoot() (id [16]byte, since time.Duration) {
	var at unix.Timespec
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) != nil {
		return id, 0
	}
	// 36 characters, of which the dashes tell nothing
	copy(id[:], bytes.ReplaceAll(text, []byte("-"), nil)[:16])
	return id, time.Duration(at.Nano())
}

// A moment is a time as both clocks tell it.
type moment struct {
	wall int64 // nanoseconds since 1970
	boot [16]byte
	up   int64 // nanoseconds since the boot
}

// moment returns what the clock tells now.
func (c Clock) moment() moment {
	id, since := c.Boot()
	return moment{c.Wall().UnixNano(), id, int64(since)}
}

// since returns how much time has passed from an earlier moment on. Within one boot it does
// not matter if somebody sets the wall clock. Over a boot only the wall clock tells; if that
// has gone back, time counts as standing still.
func (m moment) since(before moment) time.Duration {
	passed := m.wall - before.wall
	if m.boot == before.boot && m.boot != [16]byte{} {
		passed = m.up - before.up
	}
	return time.Duration(max(passed, 0))
}

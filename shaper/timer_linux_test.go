package shaper

import (
	"testing"
	"testing/synctest"
)

// newTimer returns the kernel's timer if time.Now shows the kernel's time, and else Go's
// own.
func TestTimerIsTheKernels(t *testing.T) {
	isKernels := func() bool {
		clock := newTimer()
		defer clock.close()
		_, ok := clock.(*fdTimer)
		return ok
	}
	if !isKernels() {
		t.Error("the timer is not the kernel's, though the clock is")
	}
	synctest.Test(t, func(t *testing.T) {
		if isKernels() {
			t.Error("the timer is the kernel's, though the clock is fake")
		}
	})
}

package shaper

import (
	"testing"
	"testing/synctest"
)

// The kernel's timer is used wherever its clock is that of time.Now, and nowhere else.
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

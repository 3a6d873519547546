package buffer

import "testing"

// A buffer is long enough, and at most twice as long as necessary.
func TestSizes(t *testing.T) {
	for _, n := range []int{0, 1, Min - 1, Min, Min + 1, 1000, 1024, 1025, Max - 1, Max} {
		b := Get(n)
		if got := len(b.Bytes); got < n || got > max(2*n, Min) || got != Size(n) {
			t.Errorf("the buffer for %d bytes has %d, and Size returns %d", n, got, Size(n))
		}
		b.Put()
	}
}

func TestGetDoesNotAllocate(t *testing.T) {
	Get(1000).Put()
	if got := testing.AllocsPerRun(100, func() { Get(1000).Put() }); got >= 1 { // the garbage collector may empty a pool
		t.Errorf("Get allocates %v times", got)
	}
}

func TestBeyondMaxPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Get(Max+1) does not panic")
		}
	}()
	Get(Max + 1)
}

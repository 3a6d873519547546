package trial

import (
	"testing"
	"time"
)

// A piece costs two system calls, so more than nothing and, on any machine, less than a millisecond of
// processor time.
func TestWork(t *testing.T) {
	w := BeginWork(t)
	for began := threadTime(); threadTime()-began < int64(50*time.Millisecond); {
		piece([2]int{-1, -1})
	}
	if each := w.End(); each <= 0 || each > time.Millisecond {
		t.Errorf("a piece takes %v", each)
	}
}

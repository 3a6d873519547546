package daemon

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// The scavenger gives memory back once after each rush.
func TestTidy(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // only this test collects garbage
	var mess [][]byte
	for range 32 {
		mess = append(mess, make([]byte, 1<<20))
	}
	runtime.KeepAlive(mess)
	var one scavenger
	for i, step := range []struct {
		busy, tidies bool
	}{{true, false}, {true, false}, {false, true}, {false, false}, {false, false}, {true, false}, {false, true}} {
		if step.busy {
			runtime.GC()
		}
		if got := one.check(); got != step.tidies {
			t.Errorf("step %d: memory is given back: %v, want %v", i, got, step.tidies)
		}
	}
	free := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(free)
	if n := free[0].Value.Uint64(); n > 16<<20 {
		t.Errorf("%d bytes are not given back", n)
	}
}

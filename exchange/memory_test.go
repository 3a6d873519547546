package exchange

import (
	"testing"

	"shaper/policy"
)

// expectKept compares how much more than before the process keeps.
func expectKept(t *testing.T, before, more int64) {
	t.Helper()
	if got := keptMemory.Load() - before; got != more {
		t.Errorf("the process keeps %d bytes more, not %d", got, more)
	}
}

// TestMemoryOfAConnection tests that what waits and what is kept have one bound.
func TestMemoryOfAConnection(t *testing.T) {
	const n = 1000
	one := int(policy.Holds(n))
	mem := memory{taken: int(policy.ConnectionHolds) - 2*one}
	before := keptMemory.Load()
	if !mem.keep(one) || !mem.hasRoom(n) || mem.hasRoom(2*n) {
		t.Error("there is no room for exactly one more")
	}
	if mem.keep(one + 1) {
		t.Error("more is kept than there is room for")
	}
	mem.add(one)
	if mem.hasRoom(1) || mem.keep(1) {
		t.Error("there is room beyond the bound of a connection")
	}
	expectKept(t, before, int64(one))
	mem.unkeep(one)
	if expectKept(t, before, 0); !mem.hasRoom(n) {
		t.Error("what is kept no longer still takes room")
	}
}

// TestMemoryOfTheProcess tests that connections share what may be kept, and that a refused one takes nothing.
func TestMemoryOfTheProcess(t *testing.T) {
	most := int(policy.Holds(int64(policy.RetryHolds)))
	before, n := keptMemory.Load(), 0
	connections := make([]memory, int(policy.RetriesHolds)/most+1)
	for connections[n].keep(most) {
		n++
	}
	if want := (int(policy.RetriesHolds) - int(before)) / most; n != want {
		t.Errorf("%d connections keep as much as one may, not %d", n, want)
	}
	if connections[n].taken != 0 {
		t.Error("a connection without room has taken some")
	}
	expectKept(t, before, int64(n*most))
	for i := range n {
		connections[i].unkeep(most)
	}
	var mem memory
	if mem.keep(most + 1) {
		t.Error("a single request takes more than one may")
	}
	expectKept(t, before, 0)
}

package shaper

import (
	"encoding/binary"
	"testing"

	"shaper/policy"
)

func numberedKey(t testing.TB, n int) (key policy.Key) {
	t.Helper()
	data := make([]byte, 18)
	binary.BigEndian.PutUint64(data, uint64(n))
	if err := key.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	return key
}

// A filter forgets no key before it is cleared, and takes few others for visitors.
func TestVisitors(t *testing.T) {
	var v visitors
	if v.has(numberedKey(t, 1)) {
		t.Error("somebody has been where nobody has been")
	}
	v.clear()
	for _, step := range []struct{ keys, wrong int }{{10_000, 40}, {100_000, 1 << 10}} {
		for n := range step.keys {
			v.add(numberedKey(t, n))
		}
		for n := range step.keys {
			if !v.has(numberedKey(t, n)) {
				t.Fatalf("key %d of %d is forgotten", n, step.keys)
			}
		}
		wrong := 0
		for n := range 10_000 {
			if v.has(numberedKey(t, 1<<20+n)) {
				wrong++
			}
		}
		if wrong > step.wrong {
			t.Errorf("after %d keys, %d of 10,000 others are taken for visitors, want no more than %d", step.keys, wrong, step.wrong)
		}
		v.clear()
		if v.has(numberedKey(t, 1)) {
			t.Error("a key is there after clear")
		}
	}
	key := numberedKey(t, 1)
	if n := testing.AllocsPerRun(100, func() { v.add(key); v.clear() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

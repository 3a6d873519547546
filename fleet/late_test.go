package fleet

import (
	"testing"
	"time"
)

// TestMoveOfSlots moves the slots of a class. The next grant begins later, and a grant that comes again says how far slots had moved
// when it was new. A store that has just lost what it knew moves none.
func TestMoveOfSlots(t *testing.T) {
	class := &Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
	for name, do := range both(t) {
		now, seq := Stamp(1_760_000_000_123_456), int64(0)
		ask := func(op Op, key string, number, wanted int64) Reply {
			seq++
			r, err := do(now, &Call{Op: op, Class: class, Key: key, Member: "m", Seq: seq, Grace: time.Hour, Number: number, Wanted: wanted, Need: 1})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := ask(Move, "", 0, 1000); r.Moved != 0 {
			t.Errorf("%s: a new store has moved slots by %d µs", name, r.Moved)
		}
		now = now.Add(2 * time.Second)
		first := ask(Take, "", 1, 1)
		if r := ask(Move, "k", 0, 3000); r.Moved != 0 {
			t.Errorf("%s: those of a key have moved the slots of the class by %d µs", name, r.Moved)
		}
		for i := range 3 {
			if r := ask(Move, "", 0, 3000); r.Moved != 3000*Stamp(i+1) {
				t.Errorf("%s: slots have moved by %d µs after %d times 3000", name, r.Moved, i+1)
			}
		}
		if r := ask(Take, "", 1, 1); r.First != first.First || r.Till != 0 || r.Moved != 9000 {
			t.Errorf("%s: the same grant is %+v, and was %+v", name, r, first)
		}
		now = now.Add(20 * time.Millisecond)
		if r := ask(Take, "", 2, 1); r.First != first.First+59_000 || r.Till != 9000 {
			t.Errorf("%s: the next grant is %+v after %+v", name, r, first)
		}
		now = now.Add(time.Second)
		ask(Move, "", 0, 3000)
		if r := ask(Take, "", 3, 1); r.First != now+3000 {
			t.Errorf("%s: after a second without slots, the next one begins %v after a late departure", name, r.First.Sub(now))
		}
	}
}

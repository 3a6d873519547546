package exchange_test

import (
	"testing"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// A message that had its turn in one class, and moves to another by a reload, jumps no queue there: neither if it enters the other
// class at once, nor if it has to wait until its provider reads.
func TestMovedMessageJumpsNoQueue(t *testing.T) {
	const throttled = 0x58
	for _, stalls := range []bool{false, true} {
		w := through(t, policy.SMPP, `
[class.c]
rate = "10 messages/s"
retry = { max = 3 }
[class.d]
rate = "10 messages/s"
`)
		w.send(submit(1, 1))
		one := len(w.Up.Got)
		w.answer(pdu(0x80000004, throttled, 1, ""))
		if w.Machine.Waiting() != 1 {
			t.Fatal("the message does not wait to be sent again")
		}
		d, early, late := w.classes["d"], 0, 0
		item := func(left *int) *shaper.Item {
			return &shaper.Item{Owner: leaves{func() { *left = len(w.Up.Got) }}, Cost: shaper.Cost{Messages: 1, Bytes: 1}, Held: 1}
		}
		d.Pass(w.Now, shaper.Cost{Messages: 1})
		d.Enter(w.Now, item(&early))
		if stalls {
			w.Up.Room = 0
		}
		w.Machine.Belong(w.Now, d.Join(w.Now, policy.Conn{}))
		w.Machine.Reroute(w.Now, map[*shaper.Class]bool{w.classes["c"]: true}, nil)
		w.Drive(w.Now)
		w.Up.Room = -1
		w.Drive(w.Now)
		d.Enter(w.Now, item(&late))
		w.wait(10 * time.Second)
		if early != one || late != 2*one {
			t.Errorf("stalls: %v: %d bytes of the message have left before what waited, want 0, and %d of %d before what came later", stalls, early-one, late-one, one)
		}
		w.Finish(stats.OK)
	}
}

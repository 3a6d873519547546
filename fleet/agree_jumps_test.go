package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestScriptAndModelAgreeAboutJumps is TestScriptAndModelAgree with clocks that are often set by seconds or by 9 to 25 minutes, forward and
// back again, and calls of the time before, as of a member that was stopped.
func TestScriptAndModelAgreeAboutJumps(t *testing.T) {
	t.Parallel()
	for _, class := range testClasses(t) {
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(class.Name, seed), func(t *testing.T) { agreeAboutJumps(t, class, seed) })
		}
	}
}

func agreeAboutJumps(t *testing.T, class *Class, seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(len(class.Name))))
	script, model := newScriptStore(t, "a"), &Model{ID: "a"}
	now, before := Stamp(1_760_000_000_123_456), Stamp(0)
	g := generator{r: r, class: class, seq: map[string]int64{}, number: map[string]int64{}}
	for i := range 300 {
		was := now
		switch r.IntN(25) {
		case 0, 1:
			before, now = now, now.Add(9*time.Minute+time.Duration(r.Int64N(int64(16*time.Minute))))
		case 3:
			now = now.Add(time.Duration(r.Int64N(int64(time.Minute))))
		case 2:
			if before > 0 {
				now, before = before, 0
			}
		default:
			now = g.later(now)
		}
		if r.IntN(300) == 0 {
			model.ID = fmt.Sprint("store", i)
			script.id = model.ID
		}
		for _, key := range []string{"", "k"} { // what has expired does not come back when the clock is set back
			model.find(&Call{Class: class, Key: key}, int64(now))
		}
		c := g.call(now)
		if r.IntN(3) == 0 && was > 0 {
			c.Sent = was
		}
		g.compare(t, script, model, now, c, i)
	}
}

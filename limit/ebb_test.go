package limit

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/unit"
)

// TestEbbsGiveBackNoMore compares ebbs, which are bounded, with all that was ever noted: they never give
// back more, and while there are few they give back as much.
func TestEbbsGiveBackNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e ebbs
		var all []ebb
		now := start
		for step := range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "ms")) * time.Millisecond)
			if rapid.IntRange(0, 3).Draw(t, "what") > 0 {
				units := rapid.Int64Range(0, 1000).Draw(t, "units")
				e.note(now, units)
				all = append(all, ebb{now, units})
				continue
			}
			then := now.Add(-time.Duration(rapid.IntRange(0, 200).Draw(t, "age")) * time.Millisecond)
			n := rapid.Int64Range(0, 300).Draw(t, "n")
			most := n
			for _, b := range all {
				if b.at.After(then) {
					most = min(most, b.units)
				}
			}
			got := e.giveBack(then, n)
			if got > most || got < most && step < mostEbbs {
				t.Fatalf("step %d: it gives %d of %d back, want %d", step, got, n, most)
			}
			for i := range all {
				if all[i].at.After(then) {
					all[i].units -= got
				}
			}
		}
	})
}

// TestAmendOfManyInFlight lets a bucket serve requests that reserve twice what they use, as with settle, while
// some 40 of them are under way. What they give back leaves: the whole rate is used.
func TestAmendOfManyInFlight(t *testing.T) {
	rate := unit.NewRate(unit.Tokens, 500, time.Second)
	for name, l := range map[string]Limiter{"token": NewToken(start, rate, 1000), "gcra": NewGCRA(start, rate, 1000)} {
		const minutes = 5
		used := useBySettling(l, minutes*time.Minute)
		if of := float64(used) / (500 * minutes * 60); of < 0.99 || of > 1.01 {
			t.Errorf("%s: %.2f %% of the rate is used", name, 100*of)
		}
	}
}

// useBySettling takes requests of 10 to 40 units one after the other, as soon as each may leave. Each is answered
// after a second on average, and has used some of its units: all that, it returns.
func useBySettling(l Limiter, runs time.Duration) (used int64) {
	rng := rand.New(rand.NewPCG(1, 1))
	var underWay refunds
	now := start
	for now.Before(start.Add(runs)) {
		n := 10 + rng.Int64N(31)
		at := l.Next(now, 0, n)
		if len(underWay) > 0 && !underWay[0].at.After(at) {
			a := heap.Pop(&underWay).(refund)
			now = a.at
			Amend(l, now, a.left, -a.back)
			continue
		}
		if at.After(now) {
			now = at
		}
		l.Take(now, now, n)
		uses := 1 + rng.Int64N(n)
		used += uses
		heap.Push(&underWay, refund{now.Add(time.Duration(rng.ExpFloat64() * float64(time.Second))), now, n - uses})
	}
	return used
}

// A refund comes at a time, and gives back some of what left.
type refund struct {
	at, left time.Time
	back     int64
}

type refunds []refund

func (a refunds) Len() int           { return len(a) }
func (a refunds) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a refunds) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *refunds) Push(x any)        { *a = append(*a, x.(refund)) }
func (a *refunds) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

package shaper

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"shaper/policy"
)

// A provider counts what arrives from two classes in any second, and some of it takes longer to
// write than the rest. It never sees more than the limit of the sliding log above the classes, nor
// of the one beside their gaps, and nothing waits for a write.
func TestLogHoldsForWhenItemsAreWritten(t *testing.T) {
	for seed := range uint64(30) {
		w := laggards{r: rand.New(rand.NewPCG(seed, 1)), left: map[string][]time.Duration{}}
		w.classes = tree(named("root", classBy(policy.SlidingLog, "20 packets/s")), under("root", named("a", classBy(policy.GCRA, "100 packets/s"))),
			under("root", named("b", with(leakyClass("50 packets/s"), limitBy(policy.SlidingLog, "15 packets/s")))))
		for range 2000 {
			w.step()
		}
		w.wantWindows(t, "root", 20)
		w.wantWindows(t, "b", 15)
		if n, most := len(w.left["root"]), int(w.now/second+1)*20; n < most*9/10 {
			t.Errorf("in %v only %d packets left, of %d", w.now, n, most)
		}
	}
}

// Laggards are the items of a tree, of which each takes some time to be written.
type laggards struct {
	r       *rand.Rand
	classes map[string]*Class
	now     time.Duration
	writing []writing
	left    map[string][]time.Duration // by class: when each packet was written
}

type writing struct {
	class      string
	item       *Item // nil: Pass let it leave
	since, end time.Duration
}

// step offers items, lets those leave that may, and lets time pass.
func (w *laggards) step() {
	for _, name := range []string{"a", "b"} {
		c := w.classes[name]
		if it := packet(100); w.r.IntN(3) == 0 && c.Pass(at(w.now), it.Cost) {
			w.begin(name, nil)
		} else if c.Backlog().Items < 20 {
			it.Settles = true
			if c.Enter(at(w.now), it) == Leaves {
				w.begin(name, it)
			}
		}
	}
	for it := w.classes["root"].Release(at(w.now)); it != nil; it = w.classes["root"].Release(at(w.now)) {
		w.begin(it.class.name, it)
	}
	w.wait(time.Duration(w.r.IntN(30)) * ms)
}

// begin begins to write an item.
func (w *laggards) begin(class string, it *Item) {
	w.writing = append(w.writing, writing{class, it, w.now, w.now + time.Duration(w.r.Int64N(int64(300*ms))>>w.r.IntN(8))})
}

// wait lets time pass, and tells the classes what was written meanwhile.
func (w *laggards) wait(d time.Duration) {
	end := w.now + d
	slices.SortFunc(w.writing, func(a, b writing) int { return int(a.end - b.end) })
	for ; len(w.writing) > 0 && w.writing[0].end <= end; w.writing = w.writing[1:] {
		x := w.writing[0]
		if x.item != nil {
			x.item.Left(at(x.end))
		} else {
			w.classes[x.class].Left(at(x.end), at(x.since), packet(100).Cost)
		}
		w.left["root"], w.left[x.class] = append(w.left["root"], x.end), append(w.left[x.class], x.end)
	}
	w.now = end
}

// wantWindows fails if more than limit packets of a class were written within a second.
func (w *laggards) wantWindows(t *testing.T, class string, limit int) {
	t.Helper()
	for i, left := range w.left[class][limit:] {
		if first := w.left[class][i]; left-first < second {
			t.Fatalf("of %s, packet %d was written at %v and packet %d at %v, %v sooner than a second later", class, i, first, i+limit, left, second-left+first)
		}
	}
}

// Nothing waits until an item has been written out of a class that has a sliding log.
func TestLogDoesNotWaitForAWrite(t *testing.T) {
	c := NewClass(start, classBy(policy.SlidingLog, "3 packets/s"))
	first, second, third, next := packet(1), packet(1), packet(1), packet(1)
	first.Settles, second.Settles = true, true
	enter(t, c, 0, Leaves, first, second)
	enter(t, c, 10*ms, Leaves, third)
	enter(t, c, 20*ms, Waits, next)
	first.Left(at(30 * ms))
	second.Left(at(50 * ms))
	released(t, c, 1010*ms-1)
	released(t, c, 1010*ms, next)
	enter(t, c, 1020*ms, Waits, packet(1))
	if got, want := c.Next(at(1020*ms)), at(1030*ms); !got.Equal(want) {
		t.Errorf("the next one leaves at %v, want %v", got.Sub(start), want.Sub(start))
	}
}

// A datagram may be on its way out while its session ends, and another one begins with the same key. The old
// bucket has another lock than the new one, so it does not touch their log any more.
func TestLogOfABucketThatWasGivenUp(t *testing.T) {
	conf := classBy(policy.SlidingLog, "20 packets/s")
	conf.Per = policy.Per{{By: policy.BySource, IPv4: 32, IPv6: 64}}
	c, cost := NewClass(start, conf), packet(1).Cost
	old := c.Join(start, clientOf(1))
	for range 10 {
		old.Pass(start, cost)
	}
	old.Quit(at(1 * ms))
	next := c.Join(at(2*ms), clientOf(1))
	var both sync.WaitGroup
	both.Go(func() {
		for range 10 {
			old.Left(at(3*ms), start, cost)
		}
	})
	both.Go(func() {
		for i := range 11 {
			if passes := next.Pass(at(3*ms), cost); passes != (i < 10) {
				t.Errorf("after 10 packets of the old bucket, packet %d of the new one leaves: %v", i+1, passes)
			}
		}
	})
	both.Wait()
}

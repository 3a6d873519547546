package shaper

import (
	"slices"
	"testing"
)

// TestTail holds what waits before the last item of a queue and before one that comes, in the units of
// all classes on the path.
func TestTail(t *testing.T) {
	c := tree(named("root", leakyClass("1B/s")),
		under("root", named("a", leakyClass("1 messages/s"))),
		under("root", named("b", leakyClass("1 messages/s"))))
	enter(t, c["b"], 0, Leaves, message(1000))
	enter(t, c["a"], 0, Waits, message(30), message(20), message(10))
	enter(t, c["b"], 0, Waits, message(7))
	comes := tail{node: &c["a"].node}
	last := tail{node: &c["a"].node, own: message(10).Cost}
	for _, of := range []struct {
		name                   string
		tail                   tail
		ahead, through, others int64
	}{
		{"an item that comes", comes, 3, 60, 67},
		{"the last item", last, 2, 50, 57},
	} {
		got := []int64{of.tail.ahead(), of.tail.through(&c["a"].node), of.tail.through(&c["root"].node), of.tail.others(&c["root"].node), of.tail.parts()}
		if want := []int64{of.ahead, of.ahead, of.through, of.others, of.ahead}; !slices.Equal(got, want) {
			t.Errorf("%s: before it are %d, want %d", of.name, got, want)
		}
	}
}

// TestTailWithChildren holds that what waits in a queue is known in its own unit only if children compete
// with the queue, and that a queue of nothing has parts, too.
func TestTailWithChildren(t *testing.T) {
	c := tree(named("root", leakyClass("1B/s")),
		under("root", named("a", leakyClass("1 messages/s"))),
		under("a", named("child", leakyClass("1 messages/s"))))
	enter(t, c["a"], 0, Leaves, message(1000))
	enter(t, c["a"], 0, Waits, message(30), message(20))
	of, empty := tail{node: &c["a"].node}, tail{node: &c["child"].node}
	if ahead, through := of.ahead(), of.through(&c["root"].node); ahead != 2 || through != 0 {
		t.Errorf("before it are %d messages and %d bytes, want 2 and 0", ahead, through)
	}
	if ahead, parts := empty.ahead(), empty.parts(); ahead != 0 || parts != 1024 {
		t.Errorf("the empty queue has %d in %d parts, want 0 in 1024", ahead, parts)
	}
}

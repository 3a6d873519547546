package fleet

import (
	"slices"
	"testing"
	"time"
)

// Items that are known are asked for as a whole. The others are taken to be as large as the last one.
func TestWholeItems(t *testing.T) {
	for _, c := range []struct {
		items       items
		units, want int64
	}{
		{items{3, 4, 2, 5}, 10, 9},
		{items{3, 4, 3, 5}, 10, 10},
		{items{12, 1}, 10, 12},
		{items{3, 4}, 10, 7},
		{items{3, 2}, 10, 9},
		{items{3}, 10, 9},
		{items{1}, 10, 10},
		{nil, 10, 8},
		{nil, 3, 3},
		{items{2, 2}, 3, 2},
	} {
		if n := c.items.whole(c.units, 4); n != c.want {
			t.Errorf("%d units are %d for items of %v, want %d", c.units, n, c.items, c.want)
		}
	}
}

// Want keeps what it is told, and not the slice. An item that leaves is the first of them, unless another one has
// overtaken it. The last one says how large the next is about.
func TestNextItems(t *testing.T) {
	var i items
	class := Class{Rate: mustRate(t, "10 messages/s")}
	told := []int64{3, 1, 1 << 30}
	if i.set(told, &class) {
		t.Error("no items are the same as three")
	}
	told[0] = 5
	if !slices.Equal(i, items{3, 1, maxUnits}) || !i.set([]int64{3, 1, 1 << 30}, &class) || i.set(told, &class) {
		t.Errorf("the items are %v", i)
	}
	for _, c := range []struct {
		left int64
		next items
	}{{4, items{5, 1, maxUnits}}, {5, items{1, maxUnits}}, {1, items{maxUnits}}, {maxUnits, items{maxUnits}}} {
		if i.leave(c.left); !slices.Equal(i, c.next) {
			t.Errorf("after one of %d the items are %v, want %v", c.left, i, c.next)
		}
	}
	if n := (items{1, 3, 2}).largest(); n != 3 {
		t.Errorf("the largest of 1, 3 and 2 is %d", n)
	}
	if n := testing.AllocsPerRun(100, func() { i.set(told, &class); i.leave(5); i.largest() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// The slots of an item lie in one block of a leaky bucket, or in two that follow on each other. With a burst, what
// remains of a block serves the next item, too.
func TestItemsInHand(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		name   string
		burst  int64
		joins  bool
		next   items
		placed int
		used   int64
	}{
		{"leaky", 1, false, items{3, 3, 4, 1}, 2, 6},
		{"leaky, joined", 1, true, items{3, 3, 4, 1}, 3, 10},
		{"all", 1, false, items{4, 5}, 2, 10},
		{"burst", 5, false, items{3, 3, 4, 1}, 3, 10},
		{"none", 1, false, items{7, 1}, 0, 0},
	} {
		m, err := NewMachine(Class{Name: "a", Rate: mustRate(t, "10 messages/s"), Late: time.Millisecond, Burst: c.burst}, "m", Fallback{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		h := &m.Lease("").hand
		for i := range 2 {
			h.add(block{rate: m.class.Rate, at: now.Add(time.Duration(i) * time.Second), units: 5, span: 5, joins: i == 1 && c.joins})
		}
		if rest, used := h.place(now, c.next, 10); len(rest) != len(c.next)-c.placed || used != c.used {
			t.Errorf("%s: %v of %v have no slots, the others use %d, want %d of them and %d", c.name, rest, c.next, used, c.placed, c.used)
		}
	}
}

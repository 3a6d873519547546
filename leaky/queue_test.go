package leaky

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type queued struct{ place Element[queued] }

// TestQueueIsASlice compares a queue with a slice under random operations.
func TestQueueIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Queue[queued]{MaxItems: 5, MaxBytes: 100}
		var model []*queued
		pool := make([]*queued, 10)
		for i := range pool {
			pool[i] = &queued{}
		}
		pick := rapid.SampledFrom(pool)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				one := pick.Draw(t, "one")
				if slices.Contains(model, one) {
					t.Skip("it waits already")
				}
				one.place = Element[queued]{Value: one, Bytes: rapid.Int64Range(0, 60).Draw(t, "bytes"), Items: rapid.IntRange(0, 3).Draw(t, "items")}
				q.Push(&one.place)
				model = append(model, one)
			},
			"remove": func(t *rapid.T) {
				one := pick.Draw(t, "one")
				i := slices.Index(model, one)
				if got := q.Remove(&one.place); got != (i >= 0) {
					t.Fatalf("Remove returns %v for the element at %d", got, i)
				}
				if i >= 0 {
					model = slices.Delete(model, i, i+1)
				}
			},
			"": func(t *rapid.T) { checkQueue(t, &q, model) },
		})
	})
}

func checkQueue(t *rapid.T, q *Queue[queued], model []*queued) {
	items, bytes := 0, int64(0)
	if last := q.Back(); last != nil && len(model) > 0 && last.Value != model[len(model)-1] || (last == nil) != (len(model) == 0) {
		t.Fatalf("the last of %d elements is %v", len(model), last)
	}
	e := q.Front()
	for i, one := range model {
		if e == nil || e.Value != one {
			t.Fatalf("the element at %d is %v", i, e)
		}
		items += max(one.place.Items, 1)
		bytes += one.place.Bytes
		e = e.Next()
	}
	if e != nil || q.Len() != items || q.Bytes() != bytes {
		t.Fatalf("the queue has %d items and %d bytes, and ends with %v; want %d items and %d bytes", q.Len(), q.Bytes(), e, items, bytes)
	}
	for _, n := range []int64{0, 1, 50, 100, 101} {
		for more := range 5 {
			want := items+max(more, 1) <= q.MaxItems && (items == 0 && more < 2 || bytes+n <= q.MaxBytes)
			if q.HasRoom(more, n) != want {
				t.Fatalf("with %d items of %d bytes, HasRoom(%d, %d) is %v", items, bytes, more, n, !want)
			}
		}
	}
}

func TestQueueZero(t *testing.T) {
	var q Queue[queued]
	if q.HasRoom(0, 0) || q.Front() != nil || q.Len() != 0 || q.Bytes() != 0 {
		t.Error("the zero Queue is not empty, or has room")
	}
}

func TestQueueRemoveFromAnother(t *testing.T) {
	var here, there Queue[queued]
	var one queued
	here.Push(&one.place)
	if there.Remove(&one.place) {
		t.Error("Remove took an element out of a queue that it is not in")
	}
	if !here.Remove(&one.place) || here.Remove(&one.place) {
		t.Error("Remove did not take the element out exactly once")
	}
}

func TestQueueAllocatesNothing(t *testing.T) {
	var q Queue[queued]
	var one, two queued
	if n := testing.AllocsPerRun(100, func() {
		q.Push(&one.place)
		q.Push(&two.place)
		q.Remove(&one.place)
		q.Remove(q.Front())
	}); n != 0 {
		t.Errorf("Push and Remove allocate %v times", n)
	}
}

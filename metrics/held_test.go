package metrics

import (
	"testing"
	"time"

	"shaper/stats"
)

// A class is held until the first of all that waits in it and beneath it may leave. It is not held if somebody
// need not wait, or nobody knows for how long.
func TestHeldUntil(t *testing.T) {
	at := func(seconds int64) *stats.Hold { return &stats.Hold{Until: time.Unix(seconds, 0)} }
	class := func(name, parent string, items int64, hold *stats.Hold) stats.ClassReading {
		return stats.ClassReading{Name: name, Parent: parent, BacklogItems: items, WaitsFor: hold}
	}
	for name, test := range map[string]struct {
		want    int64 // of the class top; 0: it is not held
		classes []stats.ClassReading
	}{
		"nothing waits":              {0, []stats.ClassReading{class("top", "", 0, nil)}},
		"its own quota":              {70, []stats.ClassReading{class("top", "", 5, at(70))}},
		"only for its turn":          {0, []stats.ClassReading{class("top", "", 5, nil)}},
		"until nobody knows":         {0, []stats.ClassReading{class("top", "", 5, &stats.Hold{})}},
		"its quota, a child waits":   {70, []stats.ClassReading{class("a", "top", 5, at(70)), class("top", "", 5, at(70))}},
		"the quota of a child":       {80, []stats.ClassReading{class("a", "top", 5, at(80)), class("top", "", 5, nil)}},
		"the quota of a grandchild":  {80, []stats.ClassReading{class("a", "b", 5, at(80)), class("b", "top", 5, nil), class("top", "", 5, nil)}},
		"those of two children":      {60, []stats.ClassReading{class("a", "top", 5, at(80)), class("b", "top", 1, at(60)), class("top", "", 6, at(1))}},
		"a child without a quota":    {0, []stats.ClassReading{class("a", "top", 5, at(80)), class("b", "top", 1, nil), class("top", "", 6, nil)}},
		"a child that nothing is in": {80, []stats.ClassReading{class("a", "top", 5, at(80)), class("b", "top", 0, nil), class("top", "", 5, nil)}},
		"its own items":              {0, []stats.ClassReading{class("a", "top", 5, at(80)), class("top", "", 6, nil)}},
		"its own items, held":        {75, []stats.ClassReading{class("a", "top", 5, at(80)), class("top", "", 6, at(75))}},
	} {
		got := heldUntil(test.classes)["top"]
		if want := time.Unix(test.want, 0); test.want == 0 && !got.IsZero() || test.want > 0 && !got.Equal(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

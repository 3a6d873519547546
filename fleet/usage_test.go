package fleet

import (
	"testing"
	"time"
)

// TestUsageIsToldOnce has a member learn how much of a window is used, and tell one store that recovers, and then another.
func TestUsageIsToldOnce(t *testing.T) {
	class := Class{Name: "a", Algorithm: SlidingWindow, Rate: mustRate(t, "600 messages/min"), Window: time.Minute}
	from := time.Unix(1_760_000_000, 0).Truncate(time.Minute)
	var u usage
	if u.counts(from) || u.isNews(from, 1) {
		t.Error("a member that has heard nothing has something to tell")
	}
	u.learn(from, &class, &clock{}, &Reply{Now: Stamp(from.UnixMicro()), Units: 1, Used: 400})
	for _, want := range []struct {
		after   time.Duration
		recover Stamp // of the store that recovers
		news    bool
		known   int64
		lasts   time.Duration
	}{
		{0, 1, true, 400, 2 * time.Minute},
		{time.Second, 1, false, 400, 2*time.Minute - time.Second},
		{time.Minute, 2, true, 400, time.Minute},
		{90 * time.Second, 2, false, 200, 30 * time.Second}, // it fades
		{2 * time.Minute, 3, false, 0, 0},
	} {
		now := from.Add(want.after)
		news := u.isNews(now, want.recover)
		known, lasts := u.tell(now, &class, want.recover)
		if news != want.news || known != want.known || lasts != want.lasts {
			t.Errorf("after %v: %v, %d units for %v, want %v, %d for %v", want.after, news, known, lasts, want.news, want.known, want.lasts)
		}
	}
}

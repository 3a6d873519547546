package fleet

import (
	"testing"
	"time"
)

// TestShareOfALongWindow holds that a member tells the store what it has used of its share in a window of the calendar until
// that window ends: a day of 25 hours is longer than its length says.
func TestShareOfALongWindow(t *testing.T) {
	m, err := NewMachine(classNamed(t, "calendar"), "m", Fallback{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, now := m.Lease(""), time.Unix(1_760_000_000, 0)
	ends := now.Add(25 * m.class.Window / 24)
	l.spend(now, 3, ends)
	if !l.owes(ends.Add(-1)) {
		t.Error("the store does not hear of it at the end of the window")
	}
	if l.owes(ends.Add(m.class.Window)) {
		t.Error("the store hears of it in a later window")
	}
}

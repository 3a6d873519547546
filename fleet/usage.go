package fleet

import (
	"math"
	"time"
)

// A usage is how much of the window of a lease is used, as the store has said last. The member tells the store that with each
// Take. If the store has lost what it knew, the member tells it once, even if it wants nothing. The argument recover is
// Machine.recover: one value stands for one such loss, and 0 for none.
type usage struct {
	units int64
	until time.Time // from then on they make no difference
	told  Stamp     // recover when the store was told last; 0 also if that call has failed
}

// learn notes what an answer says. An answer that does not say how much is used names fewer units than it grants, or none.
func (u *usage) learn(now time.Time, class *Class, clock *clock, r *Reply) {
	if class.Algorithm == Slots || r.Used < max(r.Units, 1) {
		return
	}
	u.units = r.Used
	if class.Algorithm == SlidingLog {
		u.until = now.Add(class.Window + class.Window/64)
		return
	}
	_, to := class.windowOf(r.Now)
	u.until = clock.local(max(r.Till, to)) // a refusal may ask the member to come again sooner
	if class.Algorithm == SlidingWindow {
		u.until = u.until.Add(class.Window)
	}
}

// counts reports whether the units make a difference at now.
func (u *usage) counts(now time.Time) bool { return now.Before(u.until) }

// room returns how many of so many units of the window are not used.
func (u *usage) room(now time.Time, of int64) int64 {
	if u.counts(now) {
		of -= u.units
	}
	return of
}

// isNews reports whether the store has lost the units and has yet to be told.
func (u *usage) isNews(now time.Time, recover Stamp) bool { return u.counts(now) && u.told != recover }

// tell returns what to tell the store, and notes that the store is told: how many units are used, and how long they still
// count; 0 and 0 if they do not. Of a sliding window that is over, fewer and fewer units count.
func (u *usage) tell(now time.Time, class *Class, recover Stamp) (known int64, lasts time.Duration) {
	if !u.counts(now) {
		return 0, 0
	}
	u.told = recover
	known, lasts = u.units, u.until.Sub(now)
	if class.Algorithm == SlidingWindow {
		known = class.faded(known, lasts)
	}
	return known, lasts
}

// patience returns how long a member believes that a window has no more than the store has said last: others may give units back. Of
// the keys of a class many may wait, so each asks less often if its window is long, or if there are many: otherwise their calls would
// keep the store, and the keys that have room.
func patience(m *Machine, keyed bool) time.Duration {
	switch {
	case m.class.Algorithm == Slots, m.mode != FromStore:
		return math.MaxInt64
	case keyed:
		return max(time.Second, m.class.Window/100, time.Duration(m.waiting)*keyEvery)
	}
	return time.Second
}

// keyEvery is how often some key asks again, of all those of a class that wait for a window.
const keyEvery = 10 * time.Millisecond

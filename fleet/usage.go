package fleet

import "time"

// A usage is how much of its window is used, as the store has said last. If the store loses that, the member tells it.
type usage struct {
	units int64
	until time.Time // from then on they make no difference
	told  Stamp     // Machine.recover when the store was told this
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

// counts reports whether it makes a difference at now.
func (u *usage) counts(now time.Time) bool { return now.Before(u.until) }

// isNews reports whether a store that recovers until then has to hear of it.
func (u *usage) isNews(now time.Time, recover Stamp) bool { return u.counts(now) && u.told != recover }

// tell returns what to tell a store that recovers until then: how many units are used, and how long they still count. Of a
// sliding window that is over, fewer and fewer do.
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

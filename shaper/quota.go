package shaper

import (
	"slices"
	"sort"
	"time"

	"shaper/limit"
	"shaper/stats"
)

// quotaFrom is the shortest window that is a quota: what remains of a shorter window means
// little by the time that somebody reads it.
const quotaFrom = time.Minute

// addQuota adds a quota. Of two with the same window, the one counts of which less remains.
func addQuota(all []stats.QuotaReading, q stats.QuotaReading) []stats.QuotaReading {
	i := slices.IndexFunc(all, func(other stats.QuotaReading) bool { return other.Window == q.Window })
	switch {
	case i < 0:
		return append(all, q)
	case q.Remaining < all[i].Remaining:
		all[i] = q
	}
	return all
}

// quota returns what remains at now of the window of a limiter, which is that of the restraint. Of a window that
// slides, Resets is when nothing counts any more, if nothing else leaves: that is always about a window away.
func (r *restraint) quota(now time.Time, l limit.Limiter, window string) stats.QuotaReading {
	holds := r.rate.Units(r.window)
	mayNot := func(n int) bool { return l.Next(now, 0, int64(n)+1).After(now) }
	q := stats.QuotaReading{Window: window, Size: holds, Remaining: int64(sort.Search(int(holds), mayNot)), Resets: now}
	if whole := l.Next(now, 0, holds); whole.After(now) && whole != limit.Never {
		q.Resets = whole
	}
	return q
}

package limit

import (
	"sort"
	"time"

	"shaper/unit"
)

// SlidingLog remembers when what left did so. An item of n units may leave at t
// if at most limit-n units left in the window that ends at t, its first instant
// left out; limit is what the rate allows in a window, whole units.
//
// Over any window at most limit units leave. Why: a window that held more would
// hold them in the part up to the last of them, which was looked at when that
// one left. An item of more than limit waits until the window is empty, and then
// takes the windows that it fills, whole ones: it is logged in the last of them.
// What is taken too early is logged when it would have been due.
//
// It is what the other windows approximate, for the price of memory: 16 bytes
// for each departure within a window, of which there is room for at most 32768.
// Under a larger limit, departures within window/32766 of each other are
// remembered as one, at the time of the last of them: what leaves may then have
// to wait so much longer, and never leaves sooner.
//
// It is the moving window of Rathgeb, see FixedWindow.
type SlidingLog struct {
	window time.Duration
	limit  int64         // units in a window
	grain  time.Duration // departures in the same one are remembered as one; 0: all are kept

	zero time.Time // when the log began
	log  ring
	base int64 // total before the first in the log; both may wrap round, since only differences count
}

// A departure is an entry of the log.
type departure struct {
	at    time.Duration // since zero
	total int64         // units that have left, with these
}

// NewSlidingLog returns a log of nothing as of now. A window below a nanosecond
// is one.
func NewSlidingLog(now time.Time, rate unit.Rate, window time.Duration) *SlidingLog {
	l := &SlidingLog{window: max(window, 1), zero: now}
	l.SetRate(now, rate, 0)
	return l
}

// Next implements Limiter. It is exact, also behind units ahead that leave one
// by one, as long as none are remembered as one.
func (l *SlidingLog) Next(now time.Time, ahead, n int64) time.Time {
	if l.limit == 0 {
		return Never
	}
	return After(l.zero, l.next(l.since(now), ahead, min(n, l.limit)))
}

// Take implements Limiter.
func (l *SlidingLog) Take(_, now time.Time, n int64) {
	if n = min(n, mostUnits-l.logged()); n <= 0 {
		return
	}
	at := l.since(now)
	l.forget(at)
	if l.limit > 0 {
		at = max(at, l.next(at, 0, min(n, l.limit)))
		at = plus(at, times((n-1)/l.limit, l.window))
	}
	total := l.base + l.logged() + n
	if l.joins(at) {
		*l.log.last() = departure{at, total}
		return
	}
	l.log.push(departure{at, total})
}

// SetRate implements Limiter. What has left in the window counts against the
// new limit; the window stays as long as it is.
func (l *SlidingLog) SetRate(_ time.Time, rate unit.Rate, _ int64) {
	l.limit, l.grain = inWindow(rate, l.window), 0
	if l.limit > mostDepartures {
		l.grain = l.window/(mostDepartures-2) + 1
	}
}

// Memory implements Limiter. It is whole only when nothing is left in the log.
func (l *SlidingLog) Memory(now time.Time) (m Memory, whole bool) {
	at := max(now.Sub(l.zero), 0)
	l.forget(at)
	if l.log.n == 0 {
		return Memory{Until: now, At: now}, true
	}
	return Memory{Until: After(l.zero, plus(l.log.last().at, l.window))}, false
}

// Remember implements Limiter: there was nothing in the log.
func (l *SlidingLog) Remember(m Memory) {}

// since returns how long after zero now is: not before the last departure.
func (l *SlidingLog) since(now time.Time) time.Duration {
	since := max(now.Sub(l.zero), 0)
	if l.log.n > 0 {
		since = max(since, l.log.last().at)
	}
	return since
}

// logged returns how many units the log has.
func (l *SlidingLog) logged() int64 {
	if l.log.n == 0 {
		return 0
	}
	return l.log.last().total - l.base
}

// next returns when, since zero, n units may leave that are at most limit.
func (l *SlidingLog) next(now time.Duration, ahead, n int64) time.Duration {
	logged := l.logged()
	gone := plus(logged, ahead) - (l.limit - n) // the unit that has to be out of the window
	if gone <= logged {
		return l.gone(gone)
	}
	// That one is still ahead. It leaves when the one limit units before it is
	// out of the window, and so on, back to one in the log.
	windows := (gone-logged-1)/l.limit + 1
	first := max(now, l.gone(gone-windows*l.limit))
	return plus(first, times(windows, l.window))
}

// gone returns when unit i of the log, counted from 1, is out of the window.
func (l *SlidingLog) gone(i int64) time.Duration {
	if i <= 0 {
		return 0
	}
	entry := sort.Search(l.log.n-1, func(e int) bool { return l.log.at(e).total-l.base >= i })
	return plus(l.log.at(entry).at, l.window)
}

// forget drops what is out of the window at now.
func (l *SlidingLog) forget(now time.Duration) {
	for l.log.n > 0 && plus(l.log.at(0).at, l.window) <= now {
		l.base = l.log.at(0).total
		l.log.pop()
	}
}

// joins reports whether a departure is remembered as one with the last.
func (l *SlidingLog) joins(at time.Duration) bool {
	if l.log.n == 0 {
		return false
	}
	last := l.log.last().at
	return last == at || l.grain > 0 && last/l.grain == at/l.grain || l.log.n == mostDepartures
}

// mostDepartures bounds a ring: 512 KiB. It is a power of two.
const mostDepartures = 1 << 15

// A ring is a FIFO of departures that grows as they come.
type ring struct {
	slots []departure // a power of two of them
	head  int
	n     int
}

func (r *ring) at(i int) *departure { return &r.slots[(r.head+i)&(len(r.slots)-1)] }

func (r *ring) last() *departure { return r.at(r.n - 1) }

func (r *ring) pop() { r.head, r.n = r.head+1, r.n-1 }

func (r *ring) push(d departure) {
	if r.n == len(r.slots) {
		grown := make([]departure, max(2*r.n, 8))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.slots, r.head = grown, 0
	}
	r.n++
	*r.last() = d
}

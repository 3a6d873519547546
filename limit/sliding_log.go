package limit

import (
	"slices"
	"sort"
	"time"

	"shaper/unit"
)

// SlidingLog remembers each departure. An item of n units may leave at t if at most
// limit-n units left in the window that ends at t, without the first instant of the
// window. limit is the whole units that the rate allows in a window.
//
// In any window at most limit units leave. Why: if a window held more, the part of
// it up to the last departure would hold more too, and the log checked that part
// when that item left. If limit is 0, nothing leaves.
//
// An item of more than limit waits until the window is empty. It counts as if its
// units filled as many windows in a row as they need: the log notes it at the start
// of the last of these. What is taken too early is noted when it would have been due.
//
// The units of an item count from when it has left, as Left says, and until then from when it was
// charged. So if items take less than a window to leave, in any order, the bound holds for the
// instants at which they left. Why: take the item of a window that was charged last. At that moment
// all others of the window were in the log, either as having left in the window or as charged.
//
// As any Limiter, it is not safe for concurrent use.
//
// The other windows approximate this one. It costs memory: 16 bytes for each
// departure within a window, and at most 32768 departures. If the limit is larger,
// departures within window/32766 of each other become one, at the time of the last
// of them. Then an item may have to wait that much longer, and never leaves sooner.
//
// It is the moving window of Rathgeb; see FixedWindow.
type SlidingLog struct {
	Start
	window time.Duration
	limit  int64         // units in a window
	grain  time.Duration // departures within the same grain become one; 0: each is kept

	zero    time.Time     // when the log began
	changed time.Duration // since when, from zero on, what leaves is noted by this limit
	log     ring
	base    int64 // total before the first departure in the log; totals may wrap round, since only differences count
}

// A departure is an entry of the log.
type departure struct {
	at    time.Duration // since zero
	total int64         // units that have left so far, these included
}

// NewSlidingLog returns a log that is empty at now. A window below a nanosecond
// counts as one.
func NewSlidingLog(now time.Time, rate unit.Rate, window time.Duration) *SlidingLog {
	l := &SlidingLog{window: max(window, 1), zero: now}
	l.SetRate(now, rate, 0)
	l.changed = 0
	return l
}

// Next implements Limiter. It is exact, also if the units ahead leave one by one,
// unless the log joins departures. If they leave as larger items, it is a lower bound: these leave a rest of the window.
func (l *SlidingLog) Next(now time.Time, ahead, n int64) time.Time {
	if l.limit == 0 {
		return Never
	}
	return After(l.zero, l.nextAt(l.since(now), ahead, min(n, l.limit)))
}

// NextAt implements Window.
func (l *SlidingLog) NextAt(rate unit.Rate, now time.Time, ahead, n int64) time.Time {
	then := *l
	then.limit = windowLimit(rate, l.window)
	return then.Next(now, ahead, n)
}

// Take implements Limiter.
func (l *SlidingLog) Take(_, now time.Time, n int64) {
	if n = min(n, maxUnits-l.logged()); n <= 0 {
		return
	}
	// If n is taken too early, nextAt needs all that is in the window now, also what is no
	// longer there once n is due.
	l.forget(max(now.Sub(l.zero), 0))
	at := l.since(now)
	if l.limit > 0 {
		at = max(at, l.nextAt(at, 0, min(n, l.limit)))
		at = plus(at, l.spread(n))
	}
	l.note(l.log.n, at, n)
}

// Left implements Settler. An item that was forgotten before it left counts from now on, like any other:
// however many leave then, they fill the window once. An item of more than limit fills as many windows as
// it needs by the limit of now. Take may have noted it by another limit, anywhere from then on.
func (l *SlidingLog) Left(now, then time.Time, n int64) {
	from, to := max(then.Sub(l.zero), 0), max(now.Sub(l.zero), 0)
	if n <= 0 || to <= from {
		return
	}
	late, first := l.spread(n), l.firstFrom(from)
	if first == l.log.n || plus(plus(from, late), l.window) <= to {
		l.forget(to)
		l.note(l.log.n, plus(l.since(now), late), min(n, maxUnits-l.logged()))
		return
	}
	to = plus(to, late)
	moved, behind := l.withdraw(from, plus(to, 1), n)
	if moved > 0 && l.unitsIn(first) == 0 {
		l.log.remove(first)
		behind--
	}
	if moved > 0 {
		l.note(behind, to, moved)
	}
}

// Alone implements Settler.
func (l *SlidingLog) Alone() bool { return false }

// SetRate implements Limiter. What has left in the window counts against the new
// limit. The length of the window does not change.
func (l *SlidingLog) SetRate(now time.Time, rate unit.Rate, _ int64) {
	if limit := windowLimit(rate, l.window); limit != l.limit {
		l.limit, l.changed = limit, plus(max(now.Sub(l.zero), 0), 1)
	}
	l.grain = 0
	if l.limit > maxDepartures {
		l.grain = l.window/(maxDepartures-2) + 1
	}
}

// Memory implements Limiter. A Memory cannot hold a log, so it is whole only if the log is
// empty.
func (l *SlidingLog) Memory(now time.Time) (m Memory, whole bool) {
	at := max(now.Sub(l.zero), 0)
	l.forget(at)
	if l.log.n == 0 {
		return Memory{Until: now, At: now}, true
	}
	return Memory{Until: After(l.zero, plus(l.log.last().at, l.window))}, false
}

// Remember implements Limiter. It has nothing to do, since only the memory of an empty log is
// whole.
func (l *SlidingLog) Remember(Memory) {}

// Clone implements Cloner.
func (l *SlidingLog) Clone() Limiter {
	c := *l
	c.log.slots = slices.Clone(l.log.slots)
	return &c
}

// recordGrains is how many parts of a window a record of a log tells apart.
const recordGrains = 128

// Record implements Recorder. For each departure, the record has two numbers: its time, in
// nanoseconds from now on (so mostly negative), and its units. Departures within the same grain
// of the window become one, at the time of the last of them, as in a log of a large limit. So a
// record has about 2*recordGrains numbers, and nothing leaves sooner than without it.
func (l *SlidingLog) Record(now time.Time) (record []int64) {
	l.forget(max(now.Sub(l.zero), 0))
	grain, before, joined := l.window/recordGrains+1, l.base, time.Duration(-1)
	for i := range l.log.n {
		d := l.log.at(i)
		at, units := int64(l.zero.Add(d.at).Sub(now)), d.total-before
		if units == 0 {
			continue // Amend has given all of it back
		}
		if last := len(record) - 2; d.at/grain == joined {
			record[last], record[last+1] = at, record[last+1]+units
		} else {
			record = append(record, at, units)
		}
		before, joined = d.total, d.at/grain
	}
	return record
}

// Recall implements Recorder, with a record of Record. The log is empty before. If Recall
// returns false, the log is of no use.
func (l *SlidingLog) Recall(then time.Time, record []int64) bool {
	if len(record)%2 != 0 || len(record) > 2*maxDepartures {
		return false
	}
	l.zero = then.Add(time.Duration(record[0]))
	for i := 0; i < len(record); i += 2 {
		at, units := time.Duration(record[i]-record[0]), record[i+1]
		if at < 0 || l.log.n > 0 && at < l.log.last().at || units <= 0 || units > maxUnits-l.logged() {
			return false
		}
		l.log.push(departure{at, l.logged() + units})
	}
	return true
}

// since returns how long after zero now is, or the last departure if that is later.
func (l *SlidingLog) since(now time.Time) time.Duration {
	since := max(now.Sub(l.zero), 0)
	if l.log.n > 0 {
		since = max(since, l.log.last().at)
	}
	return since
}

// spread returns how much later than it leaves an item of n units is noted.
func (l *SlidingLog) spread(n int64) time.Duration {
	if l.limit == 0 || n <= 0 {
		return 0
	}
	return times((n-1)/l.limit, l.window)
}

// logged returns how many units are in the log.
func (l *SlidingLog) logged() int64 {
	if l.log.n == 0 {
		return 0
	}
	return l.log.last().total - l.base
}

// nextAt returns when n units may leave if ahead units leave before them, as the time since
// zero. n is at most limit.
func (l *SlidingLog) nextAt(now time.Duration, ahead, n int64) time.Duration {
	logged := l.logged()
	gone := plus(logged, ahead) - (l.limit - n) // the number of the unit that must be out of the window first
	if gone <= logged {
		return l.goneAt(gone)
	}
	// That unit is still ahead. It leaves when the unit that is limit units before
	// it is out of the window, and so on, back to a unit in the log.
	windows := (gone-logged-1)/l.limit + 1
	first := max(now, l.goneAt(gone-windows*l.limit))
	return plus(first, times(windows, l.window))
}

// goneAt returns when unit i of the log, counted from 1, is out of the window.
func (l *SlidingLog) goneAt(i int64) time.Duration {
	if i <= 0 {
		return 0
	}
	entry := sort.Search(l.log.n-1, func(e int) bool { return l.log.at(e).total-l.base >= i })
	return plus(l.log.at(entry).at, l.window)
}

// forget drops the departures that are out of the window at now.
func (l *SlidingLog) forget(now time.Duration) {
	for l.log.n > 0 && plus(l.log.at(0).at, l.window) <= now {
		l.base = l.log.at(0).total
		l.log.pop()
	}
}

// withdraw takes up to n units out of the departures from a time on and before another one, the
// earliest first. It returns how many, and which entry is behind these departures.
func (l *SlidingLog) withdraw(from, until time.Duration, n int64) (taken int64, behind int) {
	for behind = l.firstFrom(from); behind < l.log.n && l.log.at(behind).at < until; behind++ {
		taken += min(n-taken, l.unitsIn(behind)-taken)
		l.log.at(behind).total -= taken
	}
	return taken, behind
}

// firstFrom returns the first entry from a time on.
func (l *SlidingLog) firstFrom(at time.Duration) int {
	return sort.Search(l.log.n, func(e int) bool { return l.log.at(e).at >= at })
}

// unitsIn returns how many units an entry has.
func (l *SlidingLog) unitsIn(entry int) int64 { return l.log.at(entry).total - l.totalBefore(entry) }

// totalBefore returns the total before an entry.
func (l *SlidingLog) totalBefore(entry int) int64 {
	if entry == 0 {
		return l.base
	}
	return l.log.at(entry - 1).total
}

// note adds a departure of n units before an entry. The totals from there on count them already.
func (l *SlidingLog) note(entry int, at time.Duration, n int64) {
	d := departure{at, l.totalBefore(entry) + n}
	if l.joins(entry-1, at) {
		*l.log.at(entry - 1) = d
	} else {
		l.log.insert(entry, d)
	}
}

// joins reports whether a departure becomes one with an entry before it.
func (l *SlidingLog) joins(entry int, at time.Duration) bool {
	if entry < 0 {
		return false
	}
	last := l.log.at(entry).at
	return last == at || l.grain > 0 && last/l.grain == at/l.grain || l.log.n >= maxDepartures
}

// maxDepartures bounds a ring, to 512 KiB. It is a power of two.
const maxDepartures = 1 << 15

// A ring is a FIFO of departures that grows as they come.
type ring struct {
	slots []departure // their number is a power of two
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

func (r *ring) insert(i int, d departure) {
	r.push(d)
	for j := r.n - 1; j > i; j-- {
		*r.at(j) = *r.at(j - 1)
	}
	*r.at(i) = d
}

func (r *ring) remove(i int) {
	for ; i < r.n-1; i++ {
		*r.at(i) = *r.at(i + 1)
	}
	r.n--
}

package limit

import (
	"math/bits"
	"time"

	"shaper/unit"
)

// mostUnits bounds what is counted in a window, so that no sum overflows. It is
// far above any rate; what would be more is less permissive by it.
const mostUnits = 1 << 60

// inWindow returns how many units a rate allows in a window: whole ones, since
// there are no others. It is 0 where the rate allows less than one, which
// therefore blocks.
func inWindow(rate unit.Rate, window time.Duration) int64 {
	return min(rate.Units(window), mostUnits)
}

// counters count what leaves in windows that follow one another; it is what
// FixedWindow and SlidingWindow have in common. With weigh, an item of n units
// may leave, elapsed into a window, if
//
//	before*(window-elapsed)/window + used + n <= limit
//
// and without it if used + n <= limit. The products have 128 bits: nothing is
// rounded.
//
// An item of more than limit waits until the counters are 0. It, and what is
// taken too early, is paid by as many windows as it takes.
//
// The windows are those of the wall clock, in UTC, at the time of the first:
// a window of a minute begins when the minute does, since it is there that
// providers begin theirs. From then on they are counted by the monotonic clock,
// where times have a reading of it. So a clock that is set never makes a
// window shorter or come again, and the limit holds; the price is that the
// windows are not those of the clock any more, until the next start.
type counters struct {
	window time.Duration
	limit  int64 // units in a window
	weigh  bool  // before counts

	zero   time.Time     // when the first window began
	start  time.Duration // of this window, since zero
	used   int64         // units in this window
	before int64         // units in the one before it; 0 without weigh
	owed   int64         // units that left, and that have no room yet in a window
}

func newCounters(now time.Time, rate unit.Rate, window time.Duration, weigh bool) counters {
	window = max(window, 1)
	into := now.Sub(now.Truncate(window)) // by the wall clock: Truncate leaves no other reading
	return counters{window: window, limit: inWindow(rate, window), weigh: weigh, zero: now.Add(-into)}
}

// Next implements Limiter. It is exact, also behind units ahead that leave one
// by one.
func (c *counters) Next(now time.Time, ahead, n int64) time.Time {
	if c.limit == 0 {
		return Never
	}
	then := *c
	then.advance(now)
	then.pay()
	then.let(ahead)
	return After(c.zero, then.room(min(n, c.limit)))
}

// Take implements Limiter.
func (c *counters) Take(_, now time.Time, n int64) {
	c.advance(now)
	c.owed = min(plus(c.owed, n), mostUnits)
	c.pay()
}

// SetRate implements Limiter. What has left in the window counts against the
// new limit; the window stays as long as it is.
func (c *counters) SetRate(now time.Time, rate unit.Rate, _ int64) {
	c.advance(now)
	c.limit = inWindow(rate, c.window)
}

// Memory implements Limiter. It is not whole while something is owed, which is rare.
func (c *counters) Memory(now time.Time) (m Memory, whole bool) {
	c.advance(now)
	return Memory{Until: c.empty(), At: c.zero.Add(c.start), Used: [2]int64{c.used, c.before}}, c.owed == 0
}

// Remember implements Limiter.
func (c *counters) Remember(m Memory) {
	c.zero, c.start = m.At, 0
	c.used, c.before = m.Used[0], m.Used[1]
}

// empty returns when nothing counts any more.
func (c *counters) empty() time.Time {
	windows := int64(0) // to the end of the last that counts
	switch {
	case c.used > 0 && c.weigh:
		windows = 2
	case c.used > 0, c.before > 0:
		windows = 1
	}
	if c.owed > 0 {
		if c.limit == 0 {
			return Never
		}
		windows += (c.owed-1)/c.limit + 1
	}
	return After(c.zero, plus(c.start, times(windows, c.window)))
}

// pay moves what is owed into this window, as far as it has room.
func (c *counters) pay() {
	n := min(c.owed, max(c.limit-c.used, 0))
	c.used += n
	c.owed -= n
}

// advance goes on to the window that now is in. A time that goes back is in
// the window that was reached.
func (c *counters) advance(now time.Time) {
	if passed := int64((now.Sub(c.zero) - c.start) / c.window); passed > 0 {
		c.pass(passed)
	}
}

// pass goes n windows on.
func (c *counters) pass(n int64) {
	c.pay()
	if n > 2 { // what left before the last two is forgotten, what they paid is paid
		c.start = plus(c.start, times(n-2, c.window))
		if hi, lo := bits.Mul64(uint64(n-2), uint64(c.limit)); hi > 0 || lo > uint64(c.owed) {
			c.owed = 0
		} else {
			c.owed -= int64(lo)
		}
		n = 2
	}
	for range n {
		c.start = plus(c.start, c.window)
		c.used, c.before = 0, c.used
		if !c.weigh {
			c.before = 0
		}
		c.pay()
	}
}

// room returns when, since zero, there is room for n units, which are at most
// limit.
func (c *counters) room(n int64) time.Duration {
	c.pass(c.owed / c.limit)
	for ; ; c.pass(1) {
		if room := c.limit - c.used - n; room >= 0 {
			if at := c.faded(room); at < c.window {
				return plus(c.start, at)
			}
		}
	}
}

// faded returns how long into the window it takes until before weighs room or
// less.
func (c *counters) faded(room int64) time.Duration {
	if c.before <= room {
		return 0
	}
	hi, lo := bits.Mul64(uint64(room), uint64(c.window))
	share, _ := bits.Div64(hi, lo, uint64(c.before)) // below window, as room is below before
	return c.window - time.Duration(share)
}

// let lets n units leave one by one, each as soon as it may.
func (c *counters) let(n int64) {
	c.pass(c.owed / c.limit)
	for n > 0 {
		fresh, before := c.used == 0, c.before
		rest := c.fill(c.fill(n))
		if left := n - rest; fresh && c.before == before && rest > 0 {
			// All further pairs of windows are like these two, but for the last.
			pairs := (rest - 1) / left
			c.start = plus(c.start, times(pairs, times(2, c.window)))
			rest -= pairs * left
		}
		n = rest
	}
}

// fill lets as many of n units leave as the window takes to its end, and
// returns the rest, which is for the next one.
func (c *counters) fill(n int64) (rest int64) {
	window := int64(c.window)
	faded := c.before / window // what before weighs in the last nanosecond, rounded up
	if c.before%window > 0 {
		faded++
	}
	n, rest = min(n, max(c.limit-faded-c.used, 0)), n
	c.used += n
	if rest -= n; rest > 0 {
		c.pass(1)
	}
	return rest
}

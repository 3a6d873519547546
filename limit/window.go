package limit

import (
	"math/bits"
	"time"

	"shaper/unit"
)

// maxUnits bounds what a window counts, so that no sum overflows. It is far above
// any real rate. A larger limit counts as this one.
const maxUnits = 1 << 60

// windowLimit returns how many whole units a rate allows in a window. If the rate
// allows less than one, the limit is 0 and nothing leaves.
func windowLimit(rate unit.Rate, window time.Duration) int64 {
	return min(rate.Units(window), maxUnits)
}

// counters count what leaves in windows that follow one another. FixedWindow and
// SlidingWindow share them. With weigh, an item of n units may leave, elapsed into
// a window, if
//
//	before*(window-elapsed)/window + used + n <= limit
//
// and without weigh if used + n <= limit. The products have 128 bits: nothing is
// rounded.
//
// An item of more than limit waits until the counters are 0. It uses up as many
// windows as it needs. So does an item that is taken too early.
//
// The first window is one of the wall clock, in UTC: a window of a minute begins
// when the minute does, since providers begin theirs there. Later windows follow
// by the monotonic clock if the times have it. So the limit holds even if somebody
// sets the clock: no window becomes shorter or comes twice. The price is that the
// windows then differ from those of the clock until the next start.
type counters struct {
	Start
	window time.Duration
	limit  int64 // units in a window
	weigh  bool  // the window before counts too, by its weight

	zero   time.Time     // when the first window began
	start  time.Duration // when this window began, since zero
	used   int64         // units in this window
	before int64         // units in the window before it; 0 without weigh
	owed   int64         // units that have left, and that no window has counted yet
	ebbs   ebbs          // low-water marks of what a window had to pay when it began, for Amend
}

func newCounters(now time.Time, rate unit.Rate, window time.Duration, weigh bool) counters {
	window = max(window, 1)
	into := now.Sub(now.Truncate(window)) // by the wall clock: Truncate strips the monotonic reading
	return counters{window: window, limit: windowLimit(rate, window), weigh: weigh, zero: now.Add(-into)}
}

// Next implements Limiter. It is exact, also if the units ahead leave one by one. If they leave as larger items, it is a lower
// bound: these leave a rest in each window.
func (c *counters) Next(now time.Time, ahead, n int64) time.Time {
	return c.next(c.limit, now, ahead, n)
}

// NextAt implements Window.
func (c *counters) NextAt(rate unit.Rate, now time.Time, ahead, n int64) time.Time {
	return c.next(windowLimit(rate, c.window), now, ahead, n)
}

// next is Next if a limit holds from now on.
func (c *counters) next(limit int64, now time.Time, ahead, n int64) time.Time {
	if limit == 0 {
		return Never
	}
	then := *c
	then.advance(now)
	then.limit = limit
	then.pay()
	then.leaveAhead(ahead)
	return After(c.zero, then.roomAt(min(n, limit)))
}

// Take implements Limiter.
func (c *counters) Take(_, now time.Time, n int64) {
	c.turn(now)
	c.owed = min(plus(c.owed, n), maxUnits)
	c.pay()
}

// SetRate implements Limiter. What has left in this window counts against the new
// limit. The length of the window does not change.
func (c *counters) SetRate(now time.Time, rate unit.Rate, _ int64) {
	c.turn(now)
	c.limit = windowLimit(rate, c.window)
}

// Memory implements Limiter. While something is owed, this window is full, so what is
// owed stands in the place of what the window has let out, as a negative number.
func (c *counters) Memory(now time.Time) (m Memory, whole bool) {
	c.turn(now)
	m = Memory{Until: c.emptyAt(), At: c.zero.Add(c.start), Used: [2]int64{c.used, c.before}}
	if c.owed > 0 {
		m.Used[0] = -(c.owed + max(c.used-c.limit, 0)) // a smaller limit may hold by now
	}
	return m, true
}

// Remember implements Limiter.
func (c *counters) Remember(m Memory) {
	c.zero, c.start, c.ebbs = m.At, 0, c.ebbs[:0]
	c.used, c.before, c.owed = m.Used[0], m.Used[1], 0
	if c.used < 0 {
		c.used, c.owed = c.limit, -m.Used[0]
	}
}

// emptyAt returns when nothing counts any more.
func (c *counters) emptyAt() time.Time {
	windows := int64(0) // until the end of the last one that counts
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

// pay moves what is owed into this window as far as that has room.
func (c *counters) pay() {
	n := min(c.owed, max(c.limit-c.used, 0))
	c.used += n
	c.owed -= n
}

// turn is advance, and notes what there is to pay in a window that begins.
func (c *counters) turn(now time.Time) {
	before := c.start
	if c.advance(now); c.start > before {
		c.ebbs.note(c.zero.Add(c.start), c.used+c.owed)
	}
}

// advance moves to the window that contains now. If time goes back, it stays in the
// present window.
func (c *counters) advance(now time.Time) {
	if passed := int64((now.Sub(c.zero) - c.start) / c.window); passed > 0 {
		c.skip(passed)
	}
}

// skip moves n windows forward.
func (c *counters) skip(n int64) {
	c.pay()
	if n > 2 { // all but the last two windows only pay what is owed
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

// roomAt returns when, since zero, there is room for n units; n is at most limit.
func (c *counters) roomAt(n int64) time.Duration {
	c.skip(c.owed / c.limit)
	for ; ; c.skip(1) {
		if room := c.limit - c.used - n; room >= 0 {
			if at := c.fadedAt(room); at < c.window {
				return plus(c.start, at)
			}
		}
	}
}

// fadedAt returns how far into this window the one before weighs no more than room.
func (c *counters) fadedAt(room int64) time.Duration {
	if c.before <= room {
		return 0
	}
	hi, lo := bits.Mul64(uint64(room), uint64(c.window))
	share, _ := bits.Div64(hi, lo, uint64(c.before)) // less than window, since room < before
	return c.window - time.Duration(share)
}

// leaveAhead lets n units leave one by one, each as soon as it may.
func (c *counters) leaveAhead(n int64) {
	c.skip(c.owed / c.limit)
	for n > 0 {
		fresh, before := c.used == 0, c.before
		rest := c.fillWindow(c.fillWindow(n))
		if departed := n - rest; fresh && c.before == before && rest > 0 {
			// Each further pair of windows is like this one, except the last.
			pairs := (rest - 1) / departed
			c.start = plus(c.start, times(pairs, times(2, c.window)))
			rest -= pairs * departed
		}
		n = rest
	}
}

// fillWindow lets as many of n units leave as this window takes until its end. It
// returns the rest. If there is a rest, it moves to the next window.
func (c *counters) fillWindow(n int64) (rest int64) {
	window := int64(c.window)
	faded := c.before / window // what before weighs in the last nanosecond of the window, rounded up
	if c.before%window > 0 {
		faded++
	}
	n, rest = min(n, max(c.limit-faded-c.used, 0)), n
	c.used += n
	if rest -= n; rest > 0 {
		c.skip(1)
	}
	return rest
}

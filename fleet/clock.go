package fleet

import "time"

// drift bounds how much faster or slower the store's clock runs than the local one, in millionths:
// what NTP corrects at most.
const drift = 500

// A clock maps the store's clock to the local one. Each answer says that the store's clock showed
// a time between the moments of sending and receiving, less what the store has computed since then. So
// the difference of the clocks lies in an interval; the clock keeps what all these intervals have in
// common, each wider by the drift since then. The samples with the shortest ways decide. The local
// clock is a monotonic one.
type clock struct {
	zero   time.Time // the local time that offsets refer to; zero: no sample yet
	at     time.Time // when lo and hi were computed
	lo, hi int64     // the store's clock less the local one, in nanoseconds since zero
}

// known reports whether there was a sample.
func (c *clock) known() bool { return !c.zero.IsZero() }

// sample takes an answer into account, and reports whether the store's clock has jumped since the
// last one: no difference fits both. The new one holds then.
func (c *clock) sample(sent, received time.Time, now Stamp) (jumped bool) {
	if !c.known() {
		c.zero, c.at = sent, received
		c.lo, c.hi = between(sent.Sub(c.zero), received.Sub(c.zero), now)
		return false
	}
	wider := c.widened(received)
	lo, hi := between(sent.Sub(c.zero), received.Sub(c.zero), now)
	c.lo, c.hi, c.at = max(lo, c.lo-wider), min(hi, c.hi+wider), received
	if c.lo > c.hi {
		c.lo, c.hi = lo, hi
		return true
	}
	return false
}

// between returns the interval of an answer. A Stamp is rounded down to a microsecond.
func between(sent, received time.Duration, now Stamp) (lo, hi int64) {
	return int64(now)*1000 - int64(received), int64(now)*1000 + 999 - int64(sent)
}

// widened returns how much wider the interval is on each side at now than when it was computed.
func (c *clock) widened(now time.Time) int64 {
	return max(int64(now.Sub(c.at)), 0) / 1_000_000 * drift
}

// error returns how far a mapped time may be wrong.
func (c *clock) error(now time.Time) time.Duration {
	return time.Duration((c.hi-c.lo)/2 + c.widened(now))
}

// local returns the local time of a time of the store. Before the first sample, it takes the clocks
// for equal.
func (c *clock) local(s Stamp) time.Time {
	if !c.known() {
		return time.UnixMicro(int64(s))
	}
	return c.zero.Add(time.Duration(int64(s)*1000 - (c.lo + (c.hi-c.lo)/2)))
}

// stamp returns what the store's clock shows at a local time, as far as it is known.
func (c *clock) stamp(t time.Time) Stamp {
	if !c.known() {
		return Stamp(t.UnixMicro())
	}
	return Stamp((int64(t.Sub(c.zero)) + c.lo + (c.hi-c.lo)/2) / 1000)
}

// earliest returns what the store's clock shows at least.
func (c *clock) earliest(t time.Time) Stamp {
	return Stamp((int64(t.Sub(c.zero)) + c.lo - c.widened(t)) / 1000)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

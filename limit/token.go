package limit

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"shaper/unit"
)

// Token is a token bucket on golang.org/x/time/rate: burst tokens deep, filled
// at rate, full at first.
//
// Over any window t at most burst + rate*t units leave, to within a nanosecond
// of t, since tokens are float64. An item larger than
// the bucket waits for a full one and leaves in debt, so that it passes and
// the ones after it wait for the difference; the bound is then that item
// instead of burst.
//
// It differs from rate.Limiter in three ways: a rate of 0 blocks even while
// there are tokens, a time that goes back earns nothing twice, and an item
// larger than the burst is not refused.
type Token struct {
	clock  // rate.Limiter trusts times that go back
	bucket *rate.Limiter
	rate   unit.Rate
}

// NewToken returns a full bucket as of now. A burst below 1 is 1.
func NewToken(now time.Time, r unit.Rate, burst int64) *Token {
	t := &Token{bucket: rate.NewLimiter(rate.Limit(r.PerSecond()), depth(burst)), rate: r, clock: clock{now}}
	t.bucket.AllowN(now, 0) // from here on the bucket knows a time
	return t
}

// Next implements Limiter.
func (t *Token) Next(now time.Time, ahead, n int64) time.Time {
	if t.rate.IsZero() {
		return Never
	}
	if now.Before(t.now) {
		now = t.now
	}
	need := float64(ahead) + float64(min(n, int64(t.bucket.Burst())))
	missing := need - t.bucket.TokensAt(now)
	if missing <= 0 {
		return now
	}
	// Rounded up: a moment too early would leave a fraction of a token missing.
	wait := math.Ceil(missing / t.rate.PerSecond() * 1e9)
	if wait >= math.MaxInt64 {
		return Never
	}
	return now.Add(time.Duration(wait))
}

// Take implements Limiter.
func (t *Token) Take(_, now time.Time, n int64) {
	now = t.see(now)
	if t.bucket.AllowN(now, int(n)) {
		return
	}
	// Into debt, for which the bucket has to be deep enough for a moment.
	burst := t.bucket.Burst()
	t.bucket.SetBurstAt(now, max(burst, int(n)))
	t.bucket.ReserveN(now, int(n))
	t.bucket.SetBurstAt(now, burst)
}

// SetRate implements Limiter. A larger burst fills at the new rate, what is
// above a smaller one is lost.
func (t *Token) SetRate(now time.Time, r unit.Rate, burst int64) {
	now = t.see(now)
	t.bucket.SetLimitAt(now, rate.Limit(r.PerSecond()))
	t.bucket.SetBurstAt(now, depth(burst))
	t.rate = r
}

// Memory implements Limiter.
func (t *Token) Memory(now time.Time) (m Memory, whole bool) {
	now = t.see(now)
	burst, tokens := int64(t.bucket.Burst()), t.bucket.TokensAt(now)
	m = Memory{Until: now, At: now, Used: [2]int64{burst}}
	if tokens < float64(burst) {
		there := math.Floor(tokens)
		m.Until, m.Used = t.Next(now, 0, burst), [2]int64{int64(there), int64((tokens - there) / grain)}
	}
	return m, true
}

// Remember implements Limiter. The tokens of a rate.Limiter cannot be set, only
// taken, whole ones: the part of one is what it earned in the time before.
func (t *Token) Remember(m Memory) {
	before := m.At.Add(-time.Duration(m.Used[1]))
	t.now = before
	t.bucket = rate.NewLimiter(grain*1e9, t.bucket.Burst())
	t.bucket.AllowN(before, 0)
	t.Take(before, before, int64(t.bucket.Burst())-m.Used[0])
	t.bucket.SetLimitAt(t.see(m.At), rate.Limit(t.rate.PerSecond()))
}

// grain is in what part of a token Memory counts.
const grain = 1.0 / (1 << 40)

func depth(burst int64) int { return int(max(burst, 1)) }

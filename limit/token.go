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
// of t, since tokens are float64. An item that is larger than the burst waits for a
// full bucket and leaves in debt: the items after it wait for the difference.
// Then the bound has that item in place of burst.
//
// It differs from rate.Limiter in three ways. A rate of 0 blocks even if there
// are tokens. A time that goes back does not fill the bucket twice. An item that
// is larger than the burst is not refused.
type Token struct {
	Start
	clock  // since rate.Limiter fills twice if time goes back
	bucket *rate.Limiter
	rate   unit.Rate
	ebbs   ebbs // low-water marks of the tokens that are missing, for Amend
}

// NewToken returns a token bucket that is full at now. A burst below 1 counts as 1.
func NewToken(now time.Time, r unit.Rate, burst int64) *Token {
	t := &Token{bucket: rate.NewLimiter(rate.Limit(r.PerSecond()), depth(burst)), rate: r, clock: clock{now}}
	t.bucket.AllowN(now, 0) // tells the bucket the time
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
	// Round up: a moment too early, a fraction of a token would be missing.
	wait := math.Ceil(missing / t.rate.PerSecond() * 1e9)
	if wait >= math.MaxInt64 {
		return Never
	}
	return now.Add(time.Duration(wait))
}

// Take implements Limiter.
func (t *Token) Take(_, now time.Time, n int64) {
	now = t.see(now)
	t.ebb(now)
	if t.bucket.AllowN(now, int(n)) {
		return
	}
	// Go into debt: rate.Limiter allows that only while the bucket is deep enough.
	burst := t.bucket.Burst()
	t.bucket.SetBurstAt(now, max(burst, int(n)))
	t.bucket.ReserveN(now, int(n))
	t.bucket.SetBurstAt(now, burst)
}

// Tokens implements TokenBucket.
func (t *Token) Tokens(now time.Time) float64 { return t.bucket.TokensAt(now) }

// SetRate implements Limiter. A larger burst fills at the new rate. Tokens above a
// smaller burst are lost.
func (t *Token) SetRate(now time.Time, r unit.Rate, burst int64) {
	now = t.see(now)
	t.ebb(now) // a larger burst lacks more
	t.bucket.SetLimitAt(now, rate.Limit(r.PerSecond()))
	t.bucket.SetBurstAt(now, depth(burst))
	t.rate = r
	t.ebb(now)
}

// ebb notes how many whole tokens the bucket lacks. Items may give some back in any unit: a message that
// leaves by the charge for another one gives back bytes, too.
func (t *Token) ebb(now time.Time) {
	t.ebbs.note(now, int64(float64(t.bucket.Burst())-t.bucket.TokensAt(now)))
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

// Remember implements Limiter. A rate.Limiter lets nobody set its tokens, and takes
// whole ones only. So the bucket starts a little before m.At, without the part of a
// token, and earns that part until m.At.
func (t *Token) Remember(m Memory) {
	before := m.At.Add(-time.Duration(m.Used[1]))
	t.now, t.ebbs = before, t.ebbs[:0]
	t.bucket = rate.NewLimiter(grain*1e9, t.bucket.Burst())
	t.bucket.AllowN(before, 0)
	t.Take(before, before, int64(t.bucket.Burst())-m.Used[0])
	t.bucket.SetLimitAt(t.see(m.At), rate.Limit(t.rate.PerSecond()))
}

// grain is the part of a token in which Memory counts.
const grain = 1.0 / (1 << 40)

// depth returns the depth of a bucket in tokens.
func depth(burst int64) int { return int(max(burst, 1)) }
